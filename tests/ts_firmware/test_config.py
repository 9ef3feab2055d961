import re

import pytest

from tsemu.descriptors.codes import ClockMode
from tsemu.ts_firmware._device import ffi
from tsemu.ts_firmware.config import PRESETS, PROFILES, load, preset_names
from tsemu.ts_firmware.settings import ConfigError, all_keys

MINIMAL = "[classes.dma]\nmoves_bytes = true\nbandwidth_mbps = 100\n"


def filled(config):
    structure = ffi.new("struct device_config *")
    config.fill(structure)
    return structure


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "my-soc.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_presets_are_there():
    assert preset_names() == ["edge-2", "hybrid", "server-32"]
    assert load("edge-2").summary() == "edge-2 (2 AICORE, 4 AICPU, 1 DMA)"
    assert load("server-32").number("classes.aicore.cores") == 32
    assert {"aicore", "gpu", "cpu", "dma"} == set(load("hybrid").classes)


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_has_every_key_and_a_class_that_moves_bytes(name):
    config = load(name)
    assert set(config.values) == set(all_keys(config.classes))
    assert config.description
    structure = filled(config)
    assert structure.class_count == len(config.classes)
    assert any(row.moves_bytes for row in structure.classes[0 : structure.class_count])
    assert config.classes[0] == "aicore"


@pytest.mark.parametrize("name", preset_names())
def test_every_figure_of_a_preset_says_where_it_comes_from(name):
    text = (PRESETS / f"{name}.toml").read_text(encoding="utf-8")
    references = set(re.findall(r"^# (\[\d\])", text, re.MULTILINE))
    for line in text.splitlines():
        if re.match(r"\w+ = \d", line):
            assert "#" in line, line
            assert set(re.findall(r"\[\d\]", line)) <= references, line


def test_the_structure_has_what_the_keys_say():
    structure = filled(
        load(
            "edge-2",
            {
                "classes.aicore": {"cores": 5, "frequency_mhz": 7, "cost": "fixed"},
                "scheduler.policy": "rank",
                "scheduler.profile": "hardware",
                "scheduler.retire_ps": 123,
                "scheduler.ageing_us": 3,
                "clock.mode": "paced:0.25",
                "clock.hold_limit_ms": 2,
                "limits": {"contexts": 3, "streams": 4, "events": 5, "edge_nodes": 6, "wait_ms": 7},
                "memory.alignment": 128,
                "seed": 2**63,
                "host": {"poll_cost_ns": 2, "task_cost_ps": 3, "call_cost_ps": 4},
            },
        )
    )
    row = structure.classes[0]
    assert ffi.string(row.name) == b"AICORE"
    assert (row.cores, row.frequency_mhz, row.cost, row.moves_bytes) == (5, 7, 0, 0)
    assert structure.policy == 2
    assert (structure.fetch_ps, structure.retire_ps) == (60_000, 123)
    assert structure.ageing_ps == 3_000_000
    assert structure.clock_mode == ClockMode.PACED
    assert structure.paced_num / structure.paced_den == 250
    assert structure.hold_limit_ns == 2_000_000
    assert (structure.max_contexts, structure.max_streams, structure.max_events) == (3, 4, 5)
    assert (structure.edge_nodes, structure.wait_limit_ps) == (6, 7 * 10**9)
    assert (structure.alignment, structure.seed) == (128, 2**63)
    assert (structure.poll_cost_ps, structure.host_task_ps, structure.host_call_ps) == (2000, 3, 4)


@pytest.mark.parametrize("mode", ["lockstep", "free", "paced", "paced:1"])
def test_wall_speed_is_1000_ps_per_ns(mode):
    """`free` crosses idle gaps at wall speed, so it has a pace too."""
    structure = filled(load("edge-2", {"clock.mode": mode}))
    assert (structure.paced_num, structure.paced_den) == (1000, 1)


def test_an_ideal_scheduler_costs_nothing():
    structure = filled(load("edge-2", {"scheduler.profile": "ideal"}))
    assert [getattr(structure, f"{part}_ps") for part in PROFILES["ideal"]] == [0] * 5


def test_the_profiles_are_in_order_of_speed():
    for part in ("fetch", "edge", "dispatch", "retire", "interrupt"):
        costs = [PROFILES[p][part] for p in ("ideal", "hardware", "firmware", "software")]
        assert costs == sorted(costs)


def test_the_last_of_equal_keys_counts():
    pairs = [("classes.aicore.cores", "3"), ("Classes.AICORE.cores", "4")]
    assert load("edge-2", pairs).number("classes.aicore.cores") == 4


def test_a_file_may_extend_a_preset(write):
    path = write('extends = "edge-2"\nname = "mine"\n[classes.aicore]\ncores = 9\n')
    config = load(path)
    assert config.summary() == "mine (9 AICORE, 4 AICPU, 1 DMA)"
    assert config.number("classes.aicore.frequency_mhz") == 500
    assert load(str(path)).values == config.values


def test_a_file_may_describe_its_own_classes(write):
    config = load(write("[classes.npu]\ncores = 3\n" + MINIMAL), {"classes.npu.cores": 4})
    assert config.summary() == "my-soc (4 NPU, 1 DMA)"


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("", "classes", "1 to 8"),
        ("[classes.npu]\ncores = 1\n", "classes", "moves_bytes = true"),
        ("[classes.dma]\nmoves_bytes = true\n", "classes.dma.bandwidth_mbps", "MB/s"),
        (MINIMAL + "[classes.npu]\ncores = 0\n", "classes.npu.cores", "1 to 1024"),
        (MINIMAL + "[classes.npu]\ncores = 1024\n", "classes", "at most 1024"),
        (MINIMAL + "[classes.npu]\nspeed = 1\n", "classes.npu.speed", "no such key"),
        (MINIMAL + "[classes.Npu]\ncores = 1\n", "classes", "lower-case"),
        (MINIMAL + "[classes.aaaaaaaaaaaaaaaa]\ncores = 1\n", "classes", "15"),
        (MINIMAL + "".join(f"[classes.c{i}]\n" for i in range(8)), "classes", "1 to 8"),
        ("classes = 3\n", "classes", "table"),
        ("[classes]\nnpu = 3\n", "classes.npu", "table"),
        (MINIMAL + "[limits]\ncontext = 3\n", "limits.context", "limits.contexts"),
        (MINIMAL + "[memory]\nalignment = 3\n", "memory.alignment", "power of two"),
        (MINIMAL + "[clock]\nclients = 9\n", "clock.clients", "limits.contexts"),
        ('extends = "edge-3"\n', "extends", "edge-2"),
        ("extends = 3\n", "extends", "edge-2"),
        ("cores = \n", "soc", "not TOML"),
    ],
)
def test_a_bad_file_is_refused_with_field_and_remedy(write, text, field, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        load(write(text))
    assert caught.value.field == field
    assert caught.value.hint


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe\0")
    with pytest.raises(ConfigError, match="not TOML"):
        load(tmp_path / "a.toml")


def test_a_huge_file_is_not_read(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="longer than"):
        load(tmp_path / "a.toml")


def test_an_unknown_preset_lists_the_presets():
    with pytest.raises(ConfigError, match="edge-2, hybrid, server-32"):
        load("edge-3")


@pytest.mark.parametrize("name", ["./nothing.toml", "nothing.toml", "."])
def test_a_missing_file_is_named(name):
    with pytest.raises(ConfigError, match=re.escape(name)) as caught:
        load(name if name != "." else "./")
    assert caught.value.field == "soc"
