"""Settings: what wins over what, and that a wrong value is named rather than used.

Without these, a typo in a file would silently fall back to a default, or a key end up in a log.
"""

from pathlib import Path

import pytest

from paykit_settle.config import Settings, load_settings, setting_names
from paykit_settle.errors import InvalidConfig
from paykit_settle.run import RunOptions


def test_defaults_guard_people() -> None:
    settings = load_settings({})
    assert settings == Settings()
    assert settings.processor_url == "http://127.0.0.1:8787"
    assert settings.run_options() == RunOptions()


def test_flag_wins_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "paykit.toml"
    file.write_text('zone = "Europe/Berlin"\npage_size = 50\ngrace_s = 7\n[scales]\nisk = 2\n')
    environ = {"PAYKIT_PAGE_SIZE": "25", "PAYKIT_GRACE_S": "8", "OTHER": "x"}
    settings = load_settings(environ, config_file=file, overrides={"grace_s": 9, "zone": None})
    assert (settings.zone, settings.page_size, settings.grace_s) == ("Europe/Berlin", 25, 9)
    assert settings.run_options().scale.from_wire(84000, "isk") == 840


def test_scales_are_read_from_the_environment() -> None:
    assert load_settings({"PAYKIT_SCALES": "isk=2, ugx=2"}).scales == {"isk": 2, "ugx": 2}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PAYKIT_PAGE_SIZE", "0"),
        ("PAYKIT_PAGE_SIZE", "101"),
        ("PAYKIT_PAGE_SIZE", "many"),
        ("PAYKIT_PAGE_SIZE", "1.5"),
        ("PAYKIT_ATTEMPTS_MAX", "21"),
        ("PAYKIT_GRACE_S", "-1"),
        ("PAYKIT_SCALES", "isk"),
        ("PAYKIT_SCALES", "isk=9"),
        ("PAYKIT_SCALES", "xqq=2"),
        ("PAYKIT_ZONE", "Mars/Olympus"),
        ("PAYKIT_RATES_BASE", "xqq"),
    ],
)
def test_unusable_value_in_the_environment_is_refused(variable: str, value: str) -> None:
    with pytest.raises(InvalidConfig):
        load_settings({variable: value})


def test_refusal_names_the_variable() -> None:
    with pytest.raises(InvalidConfig, match="PAYKIT_PAGE_SIZE: page_size"):
        load_settings({"PAYKIT_PAGE_SIZE": "many"})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("page_sise = 5", "unknown setting 'page_sise'"),
        ('page_size = "5"', "page_size"),
        ("page_size = 5.0", "page_size"),
        ("page_size = true", "page_size"),
        ("page_size =", "not TOML"),
    ],
)
def test_unusable_file_is_refused(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "paykit.toml"
    file.write_text(text)
    with pytest.raises(InvalidConfig, match=named):
        load_settings({}, config_file=file)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        load_settings({}, config_file=tmp_path / "absent.toml")


def test_key_is_never_in_a_repr() -> None:
    settings = load_settings({"PAYKIT_PROCESSOR_KEY": "sk_live_secret"})
    assert settings.processor_key == "sk_live_secret"
    assert "secret" not in repr(settings)
    assert "secret" not in repr(settings.make_client())


def test_client_of_an_unusable_address_is_refused_at_once() -> None:
    with pytest.raises(InvalidConfig):
        load_settings({"PAYKIT_PROCESSOR_URL": "https://processor.example"}).check_client()
    with pytest.raises(InvalidConfig):
        load_settings({"PAYKIT_PROCESSOR_URL": "nonsense"}).make_client()


def test_every_setting_has_a_name_in_lower_case() -> None:
    assert setting_names() == [name.lower() for name in setting_names()]
