"""Two processes train one model: DDP, FSDP2, tensor parallel, and what ranks agree on."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from torch import fx

from fxremat.base.errors import BudgetError, RankError
from fxremat.distributed import agreement
from fxremat.distributed.agreement import FirstWriter
from fxremat.distributed.rendezvous import meet
from fxremat.options import Options
from fxremat.planning.peers import SingleProcess
from fxremat.plans.plan import Plan
from tests.rank_programs import on_rank
from tests.steps import half

Found = dict[str, Any]
Ranks = Callable[[str], list[Found]]
GATHERED = 3 * (2 * 32 * 128 + 128 + 3 * 32) * 8  # bytes of the parameters of one block, whole
STREAM = 512 * 32 * 8  # bytes of what a block takes and returns


def run(name: str, folder: Path) -> list[Found]:
    """Run a program in two fresh processes; what each found."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.rank_programs"])
    store: Any = torch.distributed.TCPStore  # type: ignore[attr-defined]
    served = store("localhost", 0, is_master=True, wait_for_workers=False)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        both = [pool.submit(on_rank, name, rank, served.port, str(folder)) for rank in (0, 1)]
        return [one.result(timeout=400) for one in both]


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """What both ranks find when they run a program; each runs once, also for ``pytest -n``."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base

    def results(name: str) -> list[Found]:
        path = shared / f"{name}.json"
        with FileLock(f"{path}.lock"):
            if not path.exists():
                found = run(name, tmp_path_factory.mktemp(name))
                path.write_text(json.dumps(found), encoding="utf-8")
        read: list[Found] = json.loads(path.read_text(encoding="utf-8"))
        return read

    return results


def same_plans(found: list[Found]) -> list[Found]:
    """The plans of both ranks, which must be the same."""
    first, second = found
    assert first["plans"] == second["plans"]
    plans: list[Found] = first["plans"]
    return plans


@pytest.mark.parametrize("name", ["ddp", "ddp_inside"])
def test_ddp_as_one_graph_keeps_its_budget_to_the_byte(name: str, ranks: Ranks) -> None:
    (plan,) = same_plans(ranks(name))
    assert plan["recomputed"]
    for found in ranks(name):
        assert found["differ"] == 0
        assert found["measured"] == plan["predicted"] <= plan["budget"] < plan["baseline"]


def test_ddp_in_buckets_shares_a_budget_in_bytes(ranks: Ranks) -> None:
    plans = same_plans(ranks("ddp_buckets"))
    assert len(plans) == 7
    whole = plans[0]["budget"]
    assert all(p["budget"] + p["held"] == whole for p in plans)
    for found in ranks("ddp_buckets"):
        assert found["differ"] == 0
        assert found["warnings"] == []
        last = plans[-1]
        assert found["measured"] == last["held"] + last["predicted"] <= whole


@pytest.mark.parametrize("name", ["fsdp", "fsdp_whole"])
def test_fsdp_keeps_the_limit_of_each_block(name: str, ranks: Ranks) -> None:
    plans = same_plans(ranks(name))
    assert len(plans) == 2  # the first block's input needs no gradient
    assert all(p["recomputed"] for p in plans)
    for found in ranks(name):
        assert found["differ"] == 0
        # Three blocks are saved while one runs; besides, what blocks have returned, and parameters.
        graphs = 3 * plans[1]["saved"] + plans[1]["predicted"]
        assert found["measured"] <= graphs + 3 * STREAM + 3 * GATHERED
    if name == "fsdp":
        whole = ranks("fsdp_whole")[0]["plans"]
        assert all(2 * p["saved"] < q["saved"] for p, q in zip(plans, whole, strict=True))
    else:
        assert all(p["predicted"] <= p["budget"] for p in plans)


def test_tensor_parallel_collectives_run_once_and_in_order(ranks: Ranks) -> None:
    (plan,) = same_plans(ranks("tensor_parallel"))
    assert plan["recomputed"]
    assert not any("all_reduce" in n or "wait" in n for n in plan["recomputed"])
    first, second = ranks("tensor_parallel")
    assert first["collectives"] == second["collectives"]
    forward, backward = first["collectives"]
    names = [n for n in (*forward, *backward) if n.startswith("all_reduce")]
    assert names == ["all_reduce", *(f"all_reduce_{i}" for i in range(1, 24))]
    for found in (first, second):
        assert found["differ"] == 0
        # Gloo's threads let go of a collective's tensors some time after it has been waited for:
        # of 24 in a row, each waited for and dropped, up to 6 are alive at once.
        assert plan["predicted"] <= found["measured"] < 0.8 * plan["baseline"]


@pytest.mark.slow
def test_inductor_agrees_whatever_lies_in_the_caches_of_a_rank(ranks: Ranks) -> None:
    first, second = ranks("inductor")
    for name in ("cold", "cache of rank 0", "warm"):
        assert first[name]["plans"] == second[name]["plans"]
        assert max(first[name]["differ"], second[name]["differ"]) < 1e-12
    (plan,) = first["cold"]["plans"]
    for found in (first, second):
        assert found["cold"]["measured"] <= plan["predicted"] <= plan["budget"]


@pytest.mark.slow
def test_inductor_keeps_the_order_of_collectives(ranks: Ranks) -> None:
    """Else the ranks would exchange tensors of other layers, and gradients be wrong."""
    (plan,) = same_plans(ranks("tensor_parallel_inductor"))
    assert plan["recomputed"]
    for found in ranks("tensor_parallel_inductor"):
        assert found["differ"] < 1e-12
        assert found["measured"] < 0.8 * plan["baseline"]


def test_one_plan_for_all_and_ranks_of_their_own(ranks: Ranks) -> None:
    first, second = ranks("agreement")
    assert first["same"] == second["same"]
    own = [found["own"][0]["schedule"] for found in (first, second)]
    assert own[0] != own[1]  # else nothing is tested
    assert first["same"][0]["schedule"] in own


def test_ranks_with_other_sizes_plan_for_themselves(ranks: Ranks) -> None:
    first, second = ranks("agreement")
    assert first["sizes"][0]["baseline"] < second["sizes"][0]["baseline"]
    for found in (first, second):
        assert found["sizes"][0]["predicted"] <= found["sizes"][0]["budget"]


def test_a_rank_that_compiles_again_alone_waits_for_none(ranks: Ranks) -> None:
    first, second = ranks("agreement")
    assert (first["alone"]["plans"], second["alone"]["plans"]) == (1, 2)
    assert second["alone"]["seconds"] < 30  # the timeout is 60


def test_ranks_agree_when_all_compile_again(ranks: Ranks) -> None:
    first, second = ranks("agreement")
    assert len(first["again"]) == 2
    assert first["again"] == second["again"]


def test_unlike_graphs_are_an_error_on_all_ranks(ranks: Ranks) -> None:
    messages = set()
    for found in ranks("agreement"):
        assert found["unlike"]["error"] == "RankError"
        assert found["unlike"]["seconds"] < 30
        messages.add(found["unlike"]["message"])
    (message,) = messages
    kinds = ("torch._C._nn.gelu(3)", "torch.nn.functional.relu(3)")
    texts = [f"Rank {r} has 4 {kinds[r]}, where rank {1 - r} has 4 {kinds[1 - r]}" for r in (0, 1)]
    assert "is not that of rank" in message
    assert any(message.endswith(text) for text in texts)


def test_other_options_are_an_error_on_all_ranks(ranks: Ranks) -> None:
    for found in ranks("agreement"):
        assert found["options"]["error"] == "RankError"
        assert "budget=60%" in found["options"]["message"]
        assert "budget=50%" in found["options"]["message"]


def test_what_the_first_rank_cannot_plan_is_an_error_on_all_ranks(ranks: Ranks) -> None:
    said = [found["fails"]["message"] for found in ranks("agreement")]
    assert [found["fails"]["error"] for found in ranks("agreement")] == ["BudgetError"] * 2
    assert all("no plan found" in text for text in said)
    assert sum("which plans for the others, could not" in text for text in said) == 1


def test_a_rank_that_does_not_come_in_time_is_an_error_on_all_ranks(ranks: Ranks) -> None:
    first, second = (found["missing"] for found in ranks("agreement"))
    assert first["error"] == second["error"] == "RankError"
    assert first["message"] == second["message"]
    assert "rank 1 has not come to compile" in first["message"]
    assert 4 <= first["seconds"] < 30


def test_a_fake_process_group_has_nobody_to_wait_for() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        assert meet(fx.GraphModule({}, fx.Graph()), [], Options()).__class__ is SingleProcess
    finally:
        torch.distributed.destroy_process_group()


def test_who_is_waited_for_is_said_before_it_is_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moment = timedelta(milliseconds=20)
    monkeypatch.setattr(agreement, "PATIENCE", moment)
    keys = torch.distributed.HashStore()  # type: ignore[attr-defined]
    with pytest.raises(RankError, match="rank 1 has not come within 0 s"):
        agreement.wait(keys, ["key"], 3 * moment, lambda: "rank 1 has not come")
    assert "rank 1 has not come yet" in caplog.text
    keys.set("key", "value")
    agreement.wait(keys, ["key"], moment, lambda: "rank 1 has not come")


def writers() -> list[FirstWriter]:
    shared = torch.distributed.HashStore()  # type: ignore[attr-defined]
    return [FirstWriter(shared, rank, timedelta(seconds=1)) for rank in (0, 1)]


def test_a_plan_from_a_cache_counts_where_it_is_the_first() -> None:
    (late, early), plan = writers(), half()
    other = replace(plan, backward_schedule=plan.backward_schedule[::-1])
    assert early.confirms(plan)
    assert not late.confirms(other)
    assert late.confirms(plan)
    late.again()
    early.again()
    assert late.confirms(other)
    assert not early.confirms(plan)
    compiled_again = FirstWriter(early.store, early.rank, early.timeout)
    assert not compiled_again.confirms(other)  # the others may have taken what it left before
    assert compiled_again.confirms(plan)


@pytest.mark.parametrize("error", [BudgetError("too little", asked=3, least=5), OSError("gone")])
def test_an_error_of_the_rank_that_plans_reaches_the_others(error: Exception) -> None:
    def fail() -> Plan:
        raise error

    first, second = writers()
    with pytest.raises(type(error)):
        first.agree(None, fail)
    budget = isinstance(error, BudgetError)
    with pytest.raises(BudgetError if budget else RankError, match=str(error)) as caught:
        second.agree(None, half)
    if isinstance(caught.value, BudgetError):
        assert (caught.value.asked, caught.value.least) == (3, 5)


def test_a_rank_that_claims_and_is_gone_is_an_error() -> None:
    def stop() -> Plan:
        raise KeyboardInterrupt

    first, second = writers()
    with pytest.raises(KeyboardInterrupt):
        first.agree(None, stop)
    with pytest.raises(RankError, match="rank 0 plans for the others and has no plan within 1 s"):
        second.agree(None, half)
