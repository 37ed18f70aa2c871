"""The terms of a run are kept as text and come back as they were: what is lost there is settled on other terms.

Without these a scale or an age bound that does not survive its storing would be today's again when a run is resumed.
"""

from dataclasses import replace

import pytest

from paykit_settle.claiming import options_of, rates_of_run, terms_of
from paykit_settle.errors import InvariantViolated, RunRefused
from paykit_settle.money import ScaleProfile
from paykit_settle.rates import Rates
from paykit_settle.run import RunOptions
from paykit_settle.terms import Terms, differing
from paykit_settle.wire import decode_rates
from tests.rows import a_run

ODD = RunOptions(
    zone="Asia/Dubai",
    rate_age_max_h=1,
    rate_ahead_max_h=2,
    rates_base="eur",
    scale=ScaleProfile(overrides={"isk": 2, "ugx": 0}),
    rows_without_created="accept",
)


def test_terms_come_back_as_they_were_kept() -> None:
    terms = terms_of(ODD)
    assert Terms.decode(terms.encode()) == terms
    assert terms.shown() == {
        "scales": {"isk": 2, "ugx": 0},
        "rates_base": "eur",
        "rate_age_max_h": 1,
        "rate_ahead_max_h": 2,
        "rows_without_created": "accept",
    }


def test_every_option_that_decides_an_amount_is_that_of_the_claim() -> None:
    run = a_run(terms=terms_of(ODD).encode(), zone="Europe/Berlin")
    used = options_of(run, RunOptions(page_size=7, grace_s=1))
    assert terms_of(used) == terms_of(ODD)
    assert (used.zone, used.page_size, used.grace_s) == ("Europe/Berlin", 7, 1)


def test_run_of_an_older_file_uses_the_options_of_now_in_its_own_zone() -> None:
    assert options_of(a_run(zone="Asia/Tokyo"), ODD) == replace(ODD, zone="Asia/Tokyo")


def test_terms_of_an_older_program_have_the_defaults_of_later_fields() -> None:
    text = '{"scales":{},"rates_base":"usd","rate_age_max_h":120,"rate_ahead_max_h":24}'
    assert Terms.decode(text) == terms_of(RunOptions())


def test_each_difference_of_terms_is_named_by_its_setting() -> None:
    assert differing(terms_of(RunOptions()), terms_of(RunOptions())) == []
    assert differing(terms_of(ODD), terms_of(RunOptions())) == [
        "scales = isk=2,ugx=0, not none",
        "rates_base = eur, not usd",
        "rate_age_max_h = 1, not 120",
        "rate_ahead_max_h = 2, not 24",
        "rows_without_created = accept, not refuse",
    ]


@pytest.mark.parametrize("text", ["0.92", "1e-7", "1E+2", "150", "0.9200000000000000000000000000000000001"])
def test_given_rate_table_comes_back_digit_for_digit(text: str) -> None:
    given = Rates("usd", {"EUR": text}, source="by hand")
    kept = rates_of_run(a_run(rates_given=given.document()))
    assert kept is not None
    assert (kept.rate("eur"), kept.provenance()) == (given.rate("eur"), given.provenance())
    assert kept.document() == given.document()


@pytest.mark.parametrize("published", [0.92, True, None, "-1"])
def test_what_is_no_rate_does_not_become_one_by_being_kept(published: object) -> None:
    kept = decode_rates(Rates("usd", {"eur": published}).document())
    with pytest.raises(RunRefused, match="EUR"):
        kept.rate("eur")


def test_table_that_cannot_be_read_again_is_never_taken_for_none() -> None:
    with pytest.raises(InvariantViolated, match="run_000001"):
        rates_of_run(a_run(rates_given=b"{}"))
    assert rates_of_run(a_run()) is None
