"""The ledger against a dict: thousands of random steps, and both always say the same.

Without it, a rule that holds in every example could break in their combination: a replay after a refusal, a conflict
within a batch, a floor after a reversal, a balance remembered past somebody else's write.
"""

import tempfile
from pathlib import Path

import apsw
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from paykit_settle.errors import SettleError
from paykit_settle.journal import BALANCE, Journal
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.store.check import check_ledger
from paykit_settle.store.database import connect, transaction, use_wal
from paykit_settle.store.ledger import counter_balances
from paykit_settle.store.migrations import migrate
from paykit_settle.store.plan import Outcome, Receipt
from paykit_settle.store.posting import Poster, post_journal
from tests.ledger_files import credit, move

TENANTS = st.sampled_from(["t", "u"])
KEYS = st.sampled_from([f"k{number}" for number in range(12)])
NAMES = st.sampled_from(["a", "b", "c", BALANCE, "missing"])
AMOUNTS = st.integers(-50, 120) | st.sampled_from([AMOUNT_MAX, -AMOUNT_MAX, 0])
CREDITS = st.builds(lambda tenant, key, amount: credit(key, amount, tenant=tenant), TENANTS, KEYS, AMOUNTS)
MOVES = st.builds(
    lambda tenant, key, names, amount: move(key, names[0], names[1], amount, tenant=tenant),
    TENANTS,
    KEYS,
    st.lists(NAMES, min_size=2, max_size=2, unique=True),
    st.integers(1, 120) | st.just(AMOUNT_MAX),
)


class Model:
    """The rules in their plainest form: two dicts."""

    def __init__(self) -> None:
        self.balances: dict[tuple[str, str], int] = {}
        self.floors: dict[tuple[str, str], int] = {}
        self.keys: dict[tuple[str, str, str], tuple[bytes, str]] = {}
        self.outside = {"t": 0, "u": 0}

    def post(self, journal: Journal) -> str:
        """What must come of it: `booked`, `replayed`, or an error's code."""
        tenant, key = journal.tenant, (journal.tenant, journal.operation, journal.key)
        if key in self.keys:
            return "replayed" if self.keys[key][0] == journal.fingerprint else "idempotency_conflict"
        moves = [(entry.account, entry.amount) for entry in journal.entries if entry.account != "@external"]
        for name, amount in moves:
            if (tenant, name) not in self.balances and (name != BALANCE or journal.operation == "transfer"):
                return "unknown_account"
            after = self.balances.get((tenant, name), 0) + amount
            if journal.operation == "transfer" and amount < 0 and after < self.floors[(tenant, name)]:
                return "insufficient_funds"
            if abs(after) > AMOUNT_MAX:
                return "balance_out_of_range"
        for name, amount in moves:
            self.balances[(tenant, name)] = self.balances.get((tenant, name), 0) + amount
            self.floors.setdefault((tenant, name), 0)
        self.outside[tenant] -= sum(amount for _, amount in moves)
        self.keys[key] = (journal.fingerprint, journal.answer)
        return "booked"


def name_of(outcome: Outcome) -> str:
    if isinstance(outcome, SettleError):
        return outcome.code
    return "replayed" if outcome.replayed else "booked"


class LedgerMachine(RuleBasedStateMachine):
    """Batches through the poster that the writer uses, single journals beside it, and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.db"
        self.model = Model()

    @initialize(floors=st.lists(st.integers(-60, 10), min_size=3, max_size=3))
    def open(self, floors: list[int]) -> None:
        self.connection = self.opened()
        self.other = self.opened()
        self.poster = Poster(self.connection)
        for tenant in ("t", "u"):
            for name, floor in zip("abc", floors, strict=True):
                row = (tenant, name, "usd", 0, floor, 1)
                sql = "INSERT INTO accounts (tenant, id, currency, balance, floor, created_at_ms) VALUES (?,?,?,?,?,?)"
                self.connection.execute(sql, row)
                self.model.balances[(tenant, name)] = 0
                self.model.floors[(tenant, name)] = floor

    def opened(self) -> apsw.Connection:
        connection = connect(self.path, create=True)
        migrate(connection, now_ms=1)
        use_wal(connection)
        connection.execute("PRAGMA synchronous = OFF")  # only for speed: nobody pulls the plug here
        return connection

    @rule(journals=st.lists(CREDITS | MOVES, max_size=12))
    def post_a_batch(self, journals: list[Journal]) -> None:
        expected = [self.model.post(journal) for journal in journals]
        with transaction(self.connection):
            outcomes = self.poster.post(journals)
        assert [name_of(outcome) for outcome in outcomes] == expected
        for journal, outcome in zip(journals, outcomes, strict=True):
            if isinstance(outcome, Receipt):
                stored = self.model.keys[(journal.tenant, journal.operation, journal.key)]
                assert outcome.answer == stored[1], "a replay gives the first answer"

    @rule(journal=CREDITS | MOVES)
    def post_beside_it(self, journal: Journal) -> None:
        """Another process posts one: what the poster remembers is out of date."""
        expected = self.model.post(journal)
        try:
            with transaction(self.other):
                outcome: Outcome = post_journal(self.other, journal)
        except SettleError as error:
            outcome = error
        assert name_of(outcome) == expected

    @rule(journals=st.lists(CREDITS | MOVES, min_size=1, max_size=5))
    def crash_before_the_commit(self, journals: list[Journal]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.poster.post(journals)
        self.restart()

    @rule()
    def restart(self) -> None:
        self.connection.close()
        self.connection = self.opened()
        self.poster = Poster(self.connection)

    @invariant()
    def balances_agree(self) -> None:
        if self.model.balances:
            rows = self.other.execute("SELECT tenant, id, balance FROM accounts")
            assert {(tenant, id_): amount for tenant, id_, amount in rows} == self.model.balances

    def teardown(self) -> None:
        if self.model.balances:
            assert list(check_ledger(self.other).faults) == []
            for tenant, outside in self.model.outside.items():
                assert counter_balances(self.other, tenant).get(("@external", "usd"), 0) == outside
                owned = sum(amount for (owner, _), amount in self.model.balances.items() if owner == tenant)
                assert owned + outside == 0
            self.connection.close()
            self.other.close()
        self.folder.cleanup()


# 60 runs of 50 steps, many of them a batch of up to twelve journals.
LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
test_ledger_agrees_with_its_model = LedgerMachine.TestCase
