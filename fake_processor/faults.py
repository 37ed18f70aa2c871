"""Which faults are set, and whether one fires on a request: by route, count, number and seeded chance.

Pure and reproducible: the same rules and the same requests in the same order give the same faults. It decides, and
leaves it to others to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fake_processor.dice import Dice
from fake_processor.fault_catalogue import fault_kind
from fake_processor.fault_kinds import ANY, FaultKind, Stage
from fake_processor.limits import RateLimit
from fake_processor.wire import Request

RULES_MAX = 1_000


@dataclass(slots=True, kw_only=True)
class Rule:
    """One fault that is set. It looks at the requests of its route only.

    It fires on the `nth` of them, or else on those after the first `after`, at most `count` times, each with a chance
    of `per_mille` in a thousand by the `seed`. `seen` and `fired` count what has come; `picked` is the row that a fault
    of one row keeps to when none is named.
    """

    number: int
    kind: FaultKind
    route: str
    after: int
    count: int | None
    nth: int | None
    per_mille: int
    seed: int
    options: Mapping[str, int | str]
    seen: int = 0
    fired: int = 0
    picked: str = ""
    limit: RateLimit | None = None

    def fires(self, request: Request) -> bool:
        """Whether this request is hit; counts it."""
        if not _is_on(self.route, request):
            return False
        self.seen += 1
        if self.nth is not None:
            hit = self.seen == self.nth
        else:
            spent = self.count is not None and self.fired >= self.count
            hit = self.seen > self.after and not spent and Dice(self.seed, self.seen).hits(self.per_mille)
        self.fired += hit
        return hit

    def shown(self) -> dict[str, object]:
        """The rule as JSON."""
        return {
            "rule": self.number,
            "fault": self.kind.name,
            "route": self.route,
            "after": self.after,
            "count": self.count,
            "nth": self.nth,
            "per_mille": self.per_mille,
            "seed": self.seed,
            "options": dict(self.options),
            "seen": self.seen,
            "fired": self.fired,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """A fault that hits the request at hand; `dice` make its choices."""

    rule: Rule
    dice: Dice

    @property
    def name(self) -> str:
        return self.rule.kind.name

    def number(self, option: str) -> int:
        return int(self.rule.options[option])

    def text(self, option: str) -> str:
        return str(self.rule.options[option])


@dataclass(slots=True)
class FaultBook:
    """The faults that are set on one processor, in the order in which they were set."""

    rules: list[Rule] = field(default_factory=list)
    _rules_made: int = 0

    def add(
        self,
        name: str,
        *,
        route: str | None = None,
        after: int = 0,
        count: int | None = None,
        nth: int | None = None,
        per_mille: int = 1000,
        seed: int = 0,
        **options: int | str,
    ) -> Rule:
        """Set a fault. ValueError for an unknown fault or option, or for a number out of its range."""
        kind = fault_kind(name)
        for option, value in options.items():
            kind.check(option, value)
        _check_numbers(after=after, count=count, nth=nth, per_mille=per_mille, seed=seed)
        if len(self.rules) >= RULES_MAX:
            raise ValueError(f"at most {RULES_MAX} faults can be set at once; heal first")
        self._rules_made += 1
        rule = Rule(
            number=self._rules_made,
            kind=kind,
            route=_route(kind.route if route is None else route),
            after=after,
            count=count,
            nth=nth,
            per_mille=per_mille,
            seed=seed,
            options={**kind.options, **options},
        )
        if kind.stage == "limit":
            rule.limit = RateLimit(**{option: int(value) for option, value in rule.options.items()})
        self.rules.append(rule)
        return rule

    def heal(self) -> None:
        """Take every fault back. What a fault has done stays done."""
        self.rules = []

    def fire(self, request: Request) -> list[Fired]:
        """The faults that hit this request, in the order in which they were set."""
        return [
            Fired(rule=rule, dice=Dice(rule.seed, rule.number, rule.seen)) for rule in self.rules if rule.fires(request)
        ]


def of_stage(fired: list[Fired], stage: Stage) -> list[Fired]:
    """Those of them that act in one stage."""
    return [fault for fault in fired if fault.rule.kind.stage == stage] if fired else []


def _check_numbers(*, after: int, count: int | None, nth: int | None, per_mille: int, seed: int) -> None:
    bounds = {"after": (after, 0), "count": (count, 0), "nth": (nth, 1), "per_mille": (per_mille, 0), "seed": (seed, 0)}
    for name, (value, low) in bounds.items():
        if name in ("count", "nth") and value is None:
            continue
        if type(value) is not int or value < low or (name == "per_mille" and value > 1000):
            high = " to 1000" if name == "per_mille" else " or more"
            raise ValueError(f"{name} must be an integer, {low}{high}")


def _route(route: object) -> str:
    """`*`, a path, or a method and a path; `*` at the end of a path stands for any rest."""
    if not isinstance(route, str):
        raise ValueError("route must be a text such as 'GET /v1/balance_transactions', or *")
    method, _, path = route.strip().rpartition(" ")
    if route != ANY and not path.startswith("/"):
        raise ValueError(f"route {route!r:.60} is neither * nor a path, with a method or without")
    return f"{method.strip().upper()} {path}".strip()


def _is_on(route: str, request: Request) -> bool:
    method, _, path = route.rpartition(" ")
    if method and method != request.method:
        return False
    return request.path.startswith(path[:-1]) if path.endswith("*") else request.path == path
