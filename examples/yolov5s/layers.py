"""The layers of YOLOv5s (release 6.0 and later) with their shapes, from the input size.

Source of the architecture: the public model description `yolov5s.yaml` of release 6.0 (depth
multiple 0.33, width multiple 0.50, 80 classes). Every convolution, pooling and upsampling is one
`Layer`; batch normalisation, SiLU and residual additions are fused into the convolution before
them, and a concatenation costs nothing, as the consumer reads its inputs where they are.

Two public figures check the arithmetic: 7,235,389 parameters and 16.5 GFLOPs (two operations per
multiply-accumulate) at 640x640.
"""

from dataclasses import dataclass, field

INPUT = -1
"""Name of the network's input in `Layer.inputs`."""
ANCHORS = 3


@dataclass(frozen=True)
class Layer:
    """One operation of the network.

    `inputs` are indices of layers (or INPUT), whose outputs are read side by side; `channels`,
    `rows` and `columns` are those of its output, `in_channels` the sum over its inputs; `kernel`
    and `stride` are in elements of the input. `macs` is 0 for pooling and upsampling. `parameters`
    counts batch normalisation (scale and shift) or bias. `residual` is a layer whose output is
    added to this one's.
    """

    name: str
    kind: str
    stage: str
    inputs: tuple[int, ...]
    in_channels: int
    channels: int
    rows: int
    columns: int
    kernel: int
    stride: int
    macs: int
    parameters: int
    residual: int | None = None

    @property
    def weights(self) -> int:
        """Number of weights of the convolution, without bias."""
        if self.kind != "conv":
            return 0
        return self.channels * self.in_channels * self.kernel**2


@dataclass
class Network:
    """Builds the list of layers; each method returns the index of the layer it has added."""

    size: int
    layers: list[Layer] = field(default_factory=list)
    stage: str = "backbone"

    def _shape(self, inputs: tuple[int, ...]) -> tuple[int, int, int]:
        """Channels (summed), rows and columns of what is read."""
        if inputs == (INPUT,):
            return 3, self.size, self.size
        sources = [self.layers[i] for i in inputs]
        return sum(s.channels for s in sources), sources[0].rows, sources[0].columns

    def conv(
        self,
        name: str,
        inputs: tuple[int, ...],
        channels: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        bias: bool = False,
        residual: int | None = None,
    ) -> int:
        """Convolution with padding that keeps the size, divided by the stride."""
        in_channels, rows, columns = self._shape(inputs)
        rows, columns = rows // stride, columns // stride
        weights = channels * in_channels * kernel**2
        self.layers.append(
            Layer(
                name,
                "conv",
                self.stage,
                inputs,
                in_channels,
                channels,
                rows,
                columns,
                kernel,
                stride,
                weights * rows * columns,
                weights + channels * (1 if bias else 2),
                residual,
            )
        )
        return len(self.layers) - 1

    def _without_weights(self, name: str, kind: str, source: int, kernel: int, scale: int) -> int:
        channels, rows, columns = self._shape((source,))
        shape = (channels, channels, rows * scale, columns * scale)
        self.layers.append(Layer(name, kind, self.stage, (source,), *shape, kernel, 1, 0, 0))
        return len(self.layers) - 1

    def c3(self, name: str, inputs: tuple[int, ...], channels: int, depth: int, add: bool) -> int:
        """Cross-stage block: two 1x1 branches, `depth` bottlenecks on one, 1x1 over both."""
        half = channels // 2
        main = self.conv(f"{name}.cv1", inputs, half)
        side = self.conv(f"{name}.cv2", inputs, half)
        for i in range(depth):
            inner = self.conv(f"{name}.m{i}.cv1", (main,), half)
            main = self.conv(f"{name}.m{i}.cv2", (inner,), half, 3, residual=main if add else None)
        return self.conv(f"{name}.cv3", (main, side), channels)

    def sppf(self, name: str, source: int, channels: int) -> int:
        """Pyramid pooling: 1x1, three 5x5 max poolings in a row, 1x1 over all four."""
        outputs = [self.conv(f"{name}.cv1", (source,), channels // 2)]
        for i in range(3):
            outputs.append(self._without_weights(f"{name}.pool{i}", "pool", outputs[-1], 5, 1))
        return self.conv(f"{name}.cv2", tuple(outputs), channels)

    def upsample(self, name: str, source: int) -> int:
        """Nearest neighbour, twice the size."""
        return self._without_weights(name, "upsample", source, 1, 2)


def yolov5s(size: int = 640, classes: int = 80) -> list[Layer]:
    """All layers in an order in which inputs come first. `size` must be a multiple of 32.

    Raises:
        ValueError: `size` is not a positive multiple of 32.
    """
    if size <= 0 or size % 32:
        raise ValueError(f"size is {size}: give a positive multiple of 32, such as 640")
    net = Network(size)
    x = net.conv("0.conv", (INPUT,), 32, 6, 2)
    x = net.conv("1.conv", (x,), 64, 3, 2)
    x = net.c3("2.c3", (x,), 64, 1, add=True)
    x = net.conv("3.conv", (x,), 128, 3, 2)
    p3 = net.c3("4.c3", (x,), 128, 2, add=True)
    x = net.conv("5.conv", (p3,), 256, 3, 2)
    p4 = net.c3("6.c3", (x,), 256, 3, add=True)
    x = net.conv("7.conv", (p4,), 512, 3, 2)
    x = net.c3("8.c3", (x,), 512, 1, add=True)
    x = net.sppf("9.sppf", x, 512)

    net.stage = "neck"  # path aggregation: top down, then bottom up
    top = net.conv("10.conv", (x,), 256)
    x = net.upsample("11.upsample", top)
    x = net.c3("13.c3", (x, p4), 256, 1, add=False)
    middle = net.conv("14.conv", (x,), 128)
    x = net.upsample("15.upsample", middle)
    out3 = net.c3("17.c3", (x, p3), 128, 1, add=False)
    x = net.conv("18.conv", (out3,), 128, 3, 2)
    out4 = net.c3("20.c3", (x, middle), 256, 1, add=False)
    x = net.conv("21.conv", (out4,), 256, 3, 2)
    out5 = net.c3("23.c3", (x, top), 512, 1, add=False)

    net.stage = "head"
    for i, source in enumerate((out3, out4, out5)):
        net.conv(f"24.detect{i}", (source,), ANCHORS * (classes + 5), bias=True)
    return net.layers


def gflops(layers: list[Layer]) -> float:
    """Operations of one frame in units of 10**9, two per multiply-accumulate."""
    return 2e-9 * sum(layer.macs for layer in layers)
