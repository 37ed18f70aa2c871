"""The types of balance transactions that the roll-up knows by name.

A type never decides the sign or the column of an amount. It decides one thing only: whether the row moves the balance
(a payout) rather than makes it. Unknown types are counted by sign and named, because processors keep adding types.
"""

MOVES_BALANCE = frozenset({"payout", "payout_cancel", "payout_failure", "topup", "topup_reversal"})
"""Left out of a settlement, by name: they move money between the balance and a bank account."""

KNOWN_TYPES = MOVES_BALANCE | frozenset(
    """
    adjustment advance advance_funding anticipation_repayment application_fee application_fee_refund charge
    climate_order_purchase climate_order_refund connect_collection_transfer contribution fee_credit_funding
    inbound_transfer inbound_transfer_reversal issuing_authorization_hold issuing_authorization_release
    issuing_dispute issuing_dispute_provisional_credit issuing_dispute_provisional_credit_reversal
    issuing_transaction obligation_outbound obligation_reversal_inbound payment payment_failure_refund
    payment_network_reserve_hold payment_network_reserve_release payment_refund payment_reversal
    payment_unreconciled payout_minimum_balance_hold payout_minimum_balance_release refund refund_failure
    reserve_hold reserve_release reserve_transaction reserved_funds stripe_balance_payment_debit
    stripe_balance_payment_debit_reversal stripe_fee stripe_fx_fee tax_fee tax_fund transfer transfer_cancel
    transfer_failure transfer_refund
    """.split()
)
