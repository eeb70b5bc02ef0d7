"""The file for trainers: what it says, and that nothing of it reaches the trainer."""

import ast
import asyncio
import concurrent.futures
import json
import os
import socket
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bandwitness_mark as marks
from agent.app import mark_command
from agent.sample import mark_datagram

FILE = Path(marks.__file__)
ENVIRONMENT = (
    *marks.SLURM_LABELS,
    *marks.OTHER_LABELS,
    *marks.RANK_VARIABLES,
    "KUBERNETES_SERVICE_HOST",
    "BANDWITNESS_MARK",
    "BANDWITNESS_JOB",
)


class Heard:
    """A socket in the agent's place; what arrives is read by the agent's own parser."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(str(path))

    def all(self) -> list[mark_datagram.Said]:
        found = []
        while True:
            try:
                found.append(mark_datagram.parse(self.socket.recv(65_536)))
            except BlockingIOError:
                return found

    def phases(self) -> list[tuple[str, int | None]]:
        return [(said.phase, said.step) for said in self.all()]


@pytest.fixture(autouse=True)
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BANDWITNESS_MARK_SOCKET", str(tmp_path / "m"))
    monkeypatch.setattr(marks, "PODINFO", str(tmp_path / "podinfo"))
    monkeypatch.setattr(marks, "NAMESPACE_FILE", str(tmp_path / "namespace"))
    marks._pod.cache_clear()


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Heard]:
    heard = Heard(tmp_path / "m")
    yield heard
    heard.socket.close()


def test_a_checkpoint_begins_and_ends(heard: Heard) -> None:
    with marks.checkpoint(job="llm", step=500, rank=3, labels={"queue": "big"}) as mark:
        (begin,) = heard.all()
        mark.bytes = 7
    (end,) = heard.all()
    assert (begin.phase, begin.kind, begin.job, begin.step, begin.rank) == ("begin", "checkpoint", "llm", 500, 3)
    assert begin.labels == end.labels == (("queue", "big"),)
    assert (end.phase, end.step, end.bytes, begin.bytes) == ("end", 500, 7, None)


def test_an_exception_of_the_trainer_goes_on_and_is_named_at_the_end(heard: Heard) -> None:
    with pytest.raises(ZeroDivisionError), marks.restore(step=1):
        _ = 1 / 0
    begin, end = heard.all()
    assert (begin.kind, end.kind, dict(end.labels)) == ("restore", "restore", {"failed": "ZeroDivisionError"})


def test_functions_are_marked_at_each_call_also_those_that_wait(heard: Heard) -> None:
    @marks.checkpoint(step=1)
    def save(number: int) -> int:
        return number + 1

    @marks.checkpoint(step=2)
    async def save_later(number: int) -> int:
        await asyncio.sleep(0)
        return number + 2

    assert (save(1), save(number=2), asyncio.run(save_later(1))) == (2, 3, 3)
    assert heard.phases() == [("begin", 1), ("end", 1)] * 2 + [("begin", 2), ("end", 2)]


def test_what_slurm_and_torchrun_say_is_found(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "pre", "SLURM_PROCID": "9", "RANK": "11", "WORLD_SIZE": "16"}
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert marks.begin()
    (mark,) = heard.all()
    assert (mark.job, mark.rank) == ("77", 11)
    assert dict(mark.labels) == {
        "slurm_job_id": "77", "slurm_job_name": "pre", "slurm_proc_id": "9", "world_size": "16",
    }  # fmt: skip


def test_what_kubernetes_says_is_found_in_the_environment_and_the_files(
    heard: Heard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "podinfo").mkdir()
    (tmp_path / "podinfo" / "labels").write_text('app="x"\njob-name="old"\ntraining.kubeflow.org/job-name="llm-7b"\n')
    (tmp_path / "namespace").write_text("team-a")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("HOSTNAME", "llm-7b-worker-3")
    monkeypatch.setenv("NODE_NAME", "gpu-r1-01")
    assert marks.begin()
    (mark,) = heard.all()
    assert mark.job == "llm-7b"
    assert dict(mark.labels) == {
        "k8s_pod": "llm-7b-worker-3", "k8s_namespace": "team-a", "k8s_job": "llm-7b", "k8s_node": "gpu-r1-01",
    }  # fmt: skip


def test_both_senders_find_the_same_labels_of_slurm() -> None:
    assert marks.SLURM_LABELS == mark_command.LABELS
    assert (marks.MAX_DATAGRAM_BYTES, marks.MAX_LABELS) == (mark_datagram.MAX_DATAGRAM_BYTES, mark_datagram.MAX_LABELS)
    assert (marks.MAX_CHARACTERS, marks.DEFAULT_SOCKET) == (
        mark_datagram.MAX_LABEL_CHARACTERS,
        mark_command.DEFAULT_SOCKET,
    )


class Angry:
    """Raises at whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("str")

    __index__ = __hash__ = __bool__ = __str__  # type: ignore[assignment]


@pytest.mark.parametrize(
    "arguments",
    [
        {"job": "\x1b[31m\n\ud800" * 99, "labels": {"a b\n": "\x00", "": "x", 5: None, "n" * 99: "v" * 999}},
        {"step": -1, "bytes": 1e9, "rank": 1 << 40, "labels": [1]},
        {"step": 1 << 80, "kind": "Check Point!", "labels": {str(number): "漢" * 128 for number in range(99)}},
        {"step": types.SimpleNamespace(is_cuda=True, __index__=lambda: 1 / 0)},
        {"kind": "", "no_such": 1},
    ],
)
def test_odd_arguments_are_said_as_far_as_they_can_be(heard: Heard, arguments: dict[str, Any]) -> None:
    with marks.checkpoint(**arguments):
        pass
    assert [said.phase for said in heard.all()] == ["begin", "end"]  # the agent's parser took both


def test_what_cannot_be_said_raises_nothing(heard: Heard) -> None:
    for arguments in ({"job": Angry()}, {"kind": Angry()}, {"step": Angry()}, {"labels": {"a": Angry()}}):
        with marks.checkpoint(**arguments):
            pass
        assert marks.begin(**arguments) in (True, False)
    marks.begin("a", "b", 3, 4, 5)
    marks.checkpoint("a", 2, 3, 4)


def test_no_agent_a_full_queue_and_a_switch_off_are_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert not marks.begin()
    heard = Heard(tmp_path / "m")
    with heard.socket:
        while marks.begin():
            pass
        with marks.checkpoint():
            pass
        heard.all()
        monkeypatch.setenv("BANDWITNESS_MARK", "off")
        assert not marks.begin()
        assert heard.all() == []
    assert not marks.end()  # its file is there, and nobody behind it
    monkeypatch.setenv("BANDWITNESS_MARK_SOCKET", "/" + "x" * 300)
    assert not marks.begin()
    monkeypatch.setattr(marks, "socket", None)
    assert not marks.begin()
    assert capfd.readouterr() == ("", "")


def test_a_fork_says_its_own(heard: Heard) -> None:
    marks.begin(step=1)
    child = os.fork()
    if child == 0:
        marks.end(step=2)
        os._exit(0)
    os.waitpid(child, 0)
    assert heard.phases() == [("begin", 1), ("end", 2)]


def test_alone_under_isolated_python_it_says_nothing_and_takes_less_than_a_millisecond() -> None:
    """Also while the interpreter goes down, when modules are already empty."""
    code = (
        f"import sys; sys.path.insert(0, {str(FILE.parent)!r})\n"
        "import bandwitness_mark as m, time, json, atexit\n"
        "class Late:\n"
        "    def __del__(self): m.end(step=9)\n"
        "late = sys.late = Late()\n"
        "atexit.register(m.end)\n"
        "took = []\n"
        "for _ in range(50):\n"
        "    start = time.perf_counter()\n"
        "    with m.checkpoint(step=5): pass\n"
        "    took.append(time.perf_counter() - start)\n"
        "print(json.dumps(sorted(took)[25]))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) < 0.001


def test_it_is_python_3_8_and_needs_the_standard_library_only() -> None:
    tree = ast.parse(FILE.read_text(), feature_version=(3, 8))
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert named - {"transformers"} <= sys.stdlib_module_names


# ---------------------------------------------------------------- frameworks, by the shape of what they call


class Writer:
    """torch.distributed.checkpoint.StorageWriter, as far as it is touched: ``write_data`` returns a future."""

    def __init__(self, future: Any) -> None:
        self.future = future

    def write_data(self, plan: Any, planner: Any) -> Any:
        return self.future


def test_a_writer_of_torch_marks_until_what_it_writes_is_written(heard: Heard) -> None:
    future: concurrent.futures.Future[None] = concurrent.futures.Future()
    writer = Writer(future)
    assert marks.torch_writer(writer, step=4) is writer
    assert isinstance(writer, Writer)
    assert writer.write_data(None, planner=None) is future
    assert heard.phases() == [("begin", 4)]
    future.set_result(None)
    assert heard.phases() == [("end", 4)]
    writer.write_data(None, None)
    assert heard.phases() == [("begin", 4), ("end", 4)]


def test_an_asynchronous_save_is_marked_until_its_future_is_done(heard: Heard) -> None:
    future: concurrent.futures.Future[None] = concurrent.futures.Future()
    assert marks.until_done(future, "llm", 6) is future
    response = types.SimpleNamespace(upload_completion=future)
    assert marks.until_done(response, "llm", 7) is response
    assert heard.phases() == [("begin", 6), ("begin", 7)]
    future.set_exception(OSError())
    assert sorted(heard.phases()) == [("end", 6), ("end", 7)]


def test_lightning_and_deepspeed_are_marked_at_save_and_load_and_their_faults_go_on(heard: Heard) -> None:
    class Plugin:
        global_steps = 8

        def save_checkpoint(self, checkpoint: Any, path: str, storage_options: Any = None) -> None:
            if path == "full":
                raise OSError(path)

        def load_checkpoint(self, path: str) -> dict[str, int]:
            return {"global_step": 3}

    plugin = marks.lightning_io(Plugin())
    plugin.save_checkpoint({"global_step": 3}, "x")
    with pytest.raises(OSError, match="full"):
        plugin.save_checkpoint({}, "full")
    assert plugin.load_checkpoint("x") == {"global_step": 3}
    assert [(said.kind, said.phase, said.step) for said in heard.all()] == [
        ("checkpoint", "begin", 3),
        ("checkpoint", "end", 3),
        ("checkpoint", "begin", None),
        ("checkpoint", "end", None),
        ("restore", "begin", None),
        ("restore", "end", None),
    ]
    engine = marks.deepspeed_engine(Plugin())
    engine.save_checkpoint({}, "x")
    assert heard.phases() == [("begin", 8), ("end", 8)]


def test_what_has_no_such_method_is_left_as_it_is(heard: Heard) -> None:
    assert marks.torch_writer(None) is None
    thing = object()
    assert marks.lightning_io(thing) is thing
    assert heard.all() == []


def test_the_trainer_of_hugging_face_is_marked_from_the_step_that_will_save_to_the_save(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape: Any = types.ModuleType("transformers")
    shape.TrainerCallback = type("TrainerCallback", (), {})
    monkeypatch.setitem(sys.modules, "transformers", shape)
    callback = marks.hf_callback(job="ft")
    state, control = types.SimpleNamespace(global_step=10), types.SimpleNamespace(should_save=False)
    callback.on_step_end(None, state, control)
    assert heard.all() == []
    control.should_save = True
    callback.on_step_end(None, state, control, model=None)
    callback.on_epoch_end(None, state, control)
    assert heard.phases() == [("begin", 10)]
    callback.on_save(None, state, control)
    callback.on_train_end(None, state, control)
    assert heard.phases() == [("end", 10)]
