"""One frame of YOLOv5s as tasks for the engines of a hybrid SoC, with costs from the shapes.

Stages: `pre` (CPU, then GPU) -> `backbone` (NPU) -> `neck` (GPU) -> `head` (NPU) -> `post` (GPU).

- **Cycles** of a block are the multiply-accumulates of its tile divided by what one core of the
  engine does per cycle, rounded up. On the NPU an array of 32 x 32 works on 32 inputs of the
  filter (kernel area times channels) and 32 output channels at once, so both are rounded up to
  32 first; a GPU core does 128 FP16 multiply-accumulates per cycle.
- **Bytes** of a block are those of the input rows that it needs (halo included), its share of the
  weights and its output: one byte per element on the NPU (INT8), two on the GPU (FP16), each
  input in the type of the engine that has written it. Which of cycles and bytes counts is for the
  device's cost model (`roofline`: the slower of the two).
- **Blocks**: a layer is cut into bands of output rows until input and output of a band fit into
  half of a core's local memory, and by output channels until the weights fit into the other half;
  then into more bands until every core of the engine has one.

Figures without a source in this file are assumptions and say so.
"""

from dataclasses import dataclass
from math import ceil

from tsemu.examples.yolov5s.layers import INPUT, Layer, yolov5s

STAGES = ("pre", "backbone", "neck", "head", "post")
"""In the order in which a frame goes through them."""


@dataclass(frozen=True)
class Engine:
    """What the cost model knows about a core. Cores and clock are in the SoC's preset.

    `grain` is what filter inputs and output channels are rounded up to; `lanes` are elements per
    cycle of work that is no multiply-accumulate; `local_bytes` is memory of a core for one block.
    """

    name: str
    cores: int
    macs_per_cycle: int
    grain: int
    lanes: int
    element_bytes: int
    local_bytes: int


NPU = Engine("AICORE", 3, 1024, 32, 64, 1, 384 << 10)
"""RK3588: three cores, 1024 INT8 multiply-accumulates per cycle and 384 KiB each; lanes assumed."""
GPU = Engine("GPU", 4, 128, 1, 64, 2, 256 << 10)
"""Mali-G610 MP4: 64 FP32, so 128 FP16, per core and cycle; 1 MiB of L2 cache shared by four."""
CPU = Engine("CPU", 4, 16, 1, 16, 1, 256 << 10)
"""Cortex-A76: two 128-bit pipes of eight 16-bit elements; 256 KiB of L2 assumed."""

CAMERA = (1080, 1920, 3)
"""Rows, columns and bytes per pixel of a camera frame (assumption: full HD)."""
RESIZE_MACS = 4
"""Bilinear: four neighbours per output element."""
DECODE_OPS = 8
"""Per output element of the network: sigmoid, scaling, threshold (assumption)."""
CANDIDATES = 1000
"""Boxes over the threshold that suppression compares in pairs (assumption)."""
PAIR_OPS = 16
"""Operations to compare two boxes: intersection over union (assumption)."""


@dataclass(frozen=True)
class Work:
    """A task of the frame: costs are per block; `inputs` are indices of earlier tasks."""

    name: str
    stage: str
    engine: Engine
    inputs: tuple[int, ...]
    blocks: int
    cycles: int
    bytes_read: int
    bytes_written: int


def _tiles(layer: Layer, engine: Engine, in_row_bytes: int) -> tuple[int, int]:
    """Number of bands of rows and of groups of channels that a layer is cut into."""
    half = engine.local_bytes // 2
    out_row = layer.columns * layer.channels * engine.element_bytes
    groups = ceil(layer.weights * engine.element_bytes / half) if layer.weights else 1
    bands = 1
    while bands < layer.rows:
        rows = ceil(layer.rows / bands)
        in_rows = (rows - 1) * layer.stride + layer.kernel
        fits = in_rows * in_row_bytes + rows * out_row // groups <= half
        if fits and bands * groups >= engine.cores:
            break
        bands += 1
    return bands, groups


def _round_up(value: int, grain: int) -> int:
    return ceil(value / grain) * grain


def layer_work(
    layer: Layer, engine: Engine, inputs: tuple[int, ...], in_row_bytes: int, in_rows: int
) -> Work:
    """Costs of one layer: see the module's text.

    `in_row_bytes` is the size of one row of all inputs together, `in_rows` how many there are.
    """
    bands, groups = _tiles(layer, engine, in_row_bytes)
    rows, channels = ceil(layer.rows / bands), ceil(layer.channels / groups)
    elements = rows * layer.columns * channels
    if layer.kind == "conv":
        filter_inputs = _round_up(layer.in_channels * layer.kernel**2, engine.grain)
        macs = rows * layer.columns * filter_inputs * _round_up(channels, engine.grain)
        cycles = ceil(macs / engine.macs_per_cycle)
    else:
        operations = 2 * (layer.kernel - 1) or 1  # pooling: rows, then columns; upsampling: a move
        cycles = ceil(elements * operations / engine.lanes)
    needed = min((rows - 1) * layer.stride + layer.kernel, in_rows)
    read = needed * in_row_bytes + ceil(layer.weights / groups) * engine.element_bytes
    if layer.residual is not None:
        read += elements * engine.element_bytes
    written = elements * engine.element_bytes
    return Work(layer.name, layer.stage, engine, inputs, bands * groups, cycles, read, written)


def _pre(size: int) -> list[Work]:
    """Resize with bars on the CPU, quantise on the GPU."""
    rows, columns, pixel = CAMERA
    blocks = 2 * CPU.cores  # twice as many as cores, so that frames share them
    resized = size * size * 3
    resize = Work(
        "pre.resize",
        "pre",
        CPU,
        (),
        blocks,
        ceil(resized * RESIZE_MACS / blocks / CPU.macs_per_cycle),
        ceil(rows * columns * pixel / blocks),
        ceil(resized / blocks),
    )
    share = ceil(resized / GPU.cores)
    quantise = Work(
        "pre.quantise", "pre", GPU, (0,), GPU.cores, ceil(share / GPU.lanes), share, share
    )
    return [resize, quantise]


def _post(outputs: list[Layer], inputs: tuple[int, ...]) -> list[Work]:
    """Decode the boxes on all cores of the GPU, then suppress overlapping ones on one."""
    elements = sum(layer.channels * layer.rows * layer.columns for layer in outputs)
    share = ceil(elements / GPU.cores)
    box_bytes = 6 * GPU.element_bytes
    decode = Work(
        "post.decode",
        "post",
        GPU,
        inputs,
        GPU.cores,
        ceil(share * DECODE_OPS / GPU.lanes),
        share * NPU.element_bytes,
        CANDIDATES * box_bytes // GPU.cores,
    )
    pairs = CANDIDATES * (CANDIDATES - 1) // 2
    suppress = Work(
        "post.nms",
        "post",
        GPU,
        (inputs[-1] + 1,),
        1,
        ceil(pairs * PAIR_OPS / GPU.lanes),
        CANDIDATES * box_bytes,
        100 * box_bytes,
    )
    return [decode, suppress]


ENGINE_OF = {"backbone": NPU, "neck": GPU, "head": NPU}
"""Engine of each stage of the network."""


def frame(size: int = 640) -> list[Work]:
    """All tasks of one frame, inputs before what reads them. `size` as for `yolov5s`."""
    works = _pre(size)
    layers = yolov5s(size)
    first = len(works)
    for layer in layers:
        in_row_bytes, in_rows = 0, size
        inputs = []
        for source in layer.inputs:
            if source == INPUT:
                inputs.append(first - 1)
                in_row_bytes += size * 3 * NPU.element_bytes
            else:
                inputs.append(first + source)
                made = layers[source]
                width = ENGINE_OF[made.stage].element_bytes
                in_row_bytes += made.columns * made.channels * width
                in_rows = made.rows
        if layer.residual is not None:
            inputs.append(first + layer.residual)
        engine = ENGINE_OF[layer.stage]
        works.append(layer_work(layer, engine, tuple(sorted(set(inputs))), in_row_bytes, in_rows))
    heads = [(first + i, layer) for i, layer in enumerate(layers) if layer.stage == "head"]
    return works + _post([layer for _, layer in heads], tuple(index for index, _ in heads))
