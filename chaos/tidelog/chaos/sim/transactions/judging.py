"""Judges the history of a run of the suite: every check of transactions, the bank, the folds."""

from tidelog.chaos.checkers.transactions import (
    Derived,
    Pipeline,
    TransactionHistory,
    check_bank,
    check_pipeline,
    check_transactions,
    drained_logs,
)
from tidelog.chaos.workloads.transactions import (
    PlannedProcess,
    TransactionPlan,
    Work,
    amount_of,
)


def judge_history(plan: TransactionPlan, history: TransactionHistory) -> list[str]:
    """What is wrong with it."""
    found = [*check_transactions(history), *check_bank(history, amount_of)]
    logs = drained_logs(history)
    for process in plan.processes:
        if process.work is Work.FOLD:
            found += check_pipeline(logs, _pipeline_of(process))
    return [str(anomaly) for anomaly in found]


def _pipeline_of(planned: PlannedProcess) -> Pipeline:
    """What the outputs of a process that folds must be."""
    begin = f"{planned.transactional_id}."

    def read_output(value: str) -> Derived:
        name, _, source, offset, state = value.split()
        assert name.startswith(begin), f"{value} is of another process"
        return Derived(source, int(offset), state)

    return Pipeline(
        inputs=planned.reads,
        outputs=planned.writes[:1],
        read_output=read_output,
        initial="0",
        fold=lambda state, _: str(int(state) + 1),
        is_complete=False,
    )
