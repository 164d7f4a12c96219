"""Spark with executors of their own, which are given our packages, and of which one is lost in the dearest stage."""

from pathlib import Path

import pytest

from quotas.backtest.compiler import sources_digest
from tests.support.pipeline import GOAL, Pipeline
from tests.support.spark_cluster import kept_code, results, run_pipeline, spark_cluster, stage_tasks

# As the fixture `pipeline`, whose results are compared.
ARGUMENTS = (
    *("--candidates", "12", "--heavy", "3", "--partitions", "2", "--policy", "kip13", "--scope", "broker"),
    *("--capacity-in", f"{GOAL.capacity_in:.0f}", "--capacity-out", f"{GOAL.capacity_out:.0f}"),
    *("--throttled-share", f"{GOAL.throttled_share}", "--overrides", f"{GOAL.overrides}"),
)
# A few thousand rows: nothing is worth being compiled.
SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


@pytest.mark.timeout(300)  # a minute where nothing else runs
def test_executor_that_is_killed_in_the_backtest_changes_no_result(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    work, kept = tmp_path / "work", kept_code(tmp_path / "kept")

    with spark_cluster(tmp_path / "cluster", 2, kept=kept, settings=SETTINGS) as cluster:

        def lose(stage: str) -> None:
            if stage == "backtest":
                cluster.kill_executor()

        run = run_pipeline(
            pipeline.capture,
            work,
            cluster.master,
            *ARGUMENTS,
            environment=cluster.driver_environment(),
            at_stage=lose,
        )
        lost = [
            task
            for task in stage_tasks(cluster.event_log(), run.began_ms)["backtest"]
            if task.outcome != "Success"
        ]

    assert lost, "the executor had work when it was killed"
    found, expected = results(work), results(Path(pipeline.store.path))
    assert [name for name in expected if found[name] != expected[name]] == []
    # Besides errors, nothing that Java and Spark say is shown.
    assert all("Lost executor" in line for line in run.errors.splitlines()), run.errors
    # Executors ran what was sent to them, and what one has compiled the others use, also the one that was added.
    assert [path.name for path in (kept / "numba").iterdir()] == [f"sluice_{sources_digest()}"]
