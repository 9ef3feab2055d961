"""Build of tsemu: which folder is which package, and the C extensions.

Folders at the root are installed as `tsemu.*`. The rest of the metadata is in `pyproject.toml`.
With TSEMU_DEV=1 warnings in the project's C sources are errors.
"""

import os
import runpy
import tempfile
from pathlib import Path
from typing import ClassVar

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

ROOT = Path(__file__).resolve().parent
FOLDERS = (
    "descriptors",
    "mailbox",
    "ts_firmware",
    "host_driver",
    "fault_injection",
    "runtime",
    "examples",
)
DATA = ("py.typed", "*.pyi", "*.toml", "*.h", "*.c", "*.stg", "*.tsp", "*.md")
"""Files that are installed with a package, at any depth."""

LIBRARY = "tsemu.host_driver.libtsemu"
LIBRARY_FILE = "tsemu/host_driver/libtsemu.so"
CRC = "mailbox/csrc/crc32c.c"
ABI_INCLUDE = ("descriptors/include", "mailbox/include")
DEVELOPMENT = os.environ.get("TSEMU_DEV", "") not in ("", "0")
WARNINGS = ("-Wall", "-Wextra", "-Werror") if DEVELOPMENT else ()


def packages() -> dict[str, str]:
    """Return package name -> folder, for the root folders and the Python packages below them."""
    found = {}
    for folder in FOLDERS:
        found[f"tsemu.{folder}"] = folder
        for marker in sorted((ROOT / folder).glob("*/**/__init__.py")):
            below = marker.parent.relative_to(ROOT)
            found[f"tsemu.{'.'.join(below.parts)}"] = str(below)
    return found


def package_data(mapping: dict[str, str]) -> dict[str, list[str]]:
    """Return package name -> its data files, relative to the package's folder."""
    folders = {ROOT / folder for folder in mapping.values()}
    data = {}
    for name, folder in mapping.items():
        base = ROOT / folder
        files = []
        for pattern in DATA:
            for path in base.rglob(pattern):
                owner = next(parent for parent in path.parents if parent in folders)
                if owner == base:
                    files.append(str(path.relative_to(base)))
        data[name] = sorted(files)
    return data


def sources(*patterns: str) -> list[str]:
    """Return files that match, relative to the root; a pattern that matches nothing is an error."""
    found: list[str] = []
    for pattern in patterns:
        matches = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))
        if not matches:
            raise SystemExit(f"setup.py: no file matches {pattern}: the source tree is incomplete")
        found += matches
    return found


def headers(*include: str) -> list[str]:
    """Return headers on which an extension with these include folders depends."""
    found = [path for folder in include for path in (ROOT / folder).rglob("*.h")]
    return [str(path.relative_to(ROOT)) for path in found]


OPTIMISED = ("-O3", "-flto=auto")
"""The path of a task crosses many small functions in several files: inlining across files pays.
A compiler that cannot do that builds with `-O3` alone (see `BuildExtensions.across_files`)."""


def extension(
    name: str, patterns: tuple[str, ...], include: tuple[str, ...], *, script: str | None = None
) -> Extension:
    """Return an extension; `script` defines `ffibuilder`, whose C code is added to the sources."""
    built = Extension(
        name,
        sources=sources(*patterns),
        include_dirs=list(include),
        depends=headers(*include) + ([script] if script else []),
        extra_compile_args=["-std=c11", *OPTIMISED],
        extra_link_args=[*OPTIMISED],
    )
    built.cffi_script = script
    return built


def extensions() -> list[Extension]:
    """Return the C driver library, its Python binding, the ring and the device, in build order."""
    driver_include = (*ABI_INCLUDE, "host_driver/include", "host_driver/csrc")
    library = extension(LIBRARY, ("mailbox/csrc/*.c", "host_driver/csrc/*.c"), driver_include)
    library.define_macros = [("_GNU_SOURCE", None)]  # eventfd, memfd, clocks: Linux only
    library.extra_link_args += ["-Wl,-soname,libtsemu.so", "-Wl,-z,defs", "-pthread"]
    binding = extension(
        "tsemu.host_driver._driver", (), driver_include, script="host_driver/build_driver.py"
    )
    binding.libraries = ["tsemu"]
    binding.extra_link_args += ["-Wl,-rpath,$ORIGIN"]
    ring = extension(
        "tsemu.mailbox._ring", (CRC,), ("mailbox/include",), script="mailbox/build_ring.py"
    )
    device = extension(
        "tsemu.ts_firmware._device",
        (CRC, "ts_firmware/core/*.c", "ts_firmware/soc/*.c"),
        (*ABI_INCLUDE, "ts_firmware/core", "ts_firmware/soc"),
        script="ts_firmware/build_device.py",
    )
    device.extra_compile_args.append("-fvisibility=hidden")
    return [library, binding, ring, device]


class BuildExtensions(build_ext):
    """Builds the plain shared library first, and generates the C code of the cffi modules."""

    user_options: ClassVar[list] = [
        *build_ext.user_options,
        ("only=", None, "build one extension, such as _device, libtsemu or _driver"),
    ]

    def initialize_options(self) -> None:
        super().initialize_options()
        self.only = None

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = None  # the binding links to the library: one after the other
        if self.only:
            self.extensions = [ext for ext in self.extensions if ext.name.endswith(self.only)]
            if not self.extensions:
                raise SystemExit(f"setup.py: no extension is called {self.only}")

    def get_ext_filename(self, fullname: str) -> str:
        """Return the file of an extension; the library's has no Python version in its name."""
        if fullname == LIBRARY:
            return LIBRARY_FILE
        if fullname == LIBRARY.rpartition(".")[2]:  # asked without the package, in place
            return Path(LIBRARY_FILE).name
        return super().get_ext_filename(fullname)

    def build_extensions(self) -> None:
        compile_one = self.compiler._compile  # noqa: SLF001 - no public place sees one file

        def with_warnings(obj: str, src: str, ext: str, *flags: list[str]) -> None:
            cc_args, postargs, pp_opts = flags
            if not Path(src).is_relative_to(self.build_temp):  # what cffi wrote is not ours
                postargs = [*postargs, *WARNINGS]
            compile_one(obj, src, ext, cc_args, postargs, pp_opts)

        if not self.across_files():
            for ext in self.extensions:
                for flags in (ext.extra_compile_args, ext.extra_link_args):
                    flags[:] = [flag for flag in flags if not flag.startswith("-flto")]
        self.compiler._compile = with_warnings  # noqa: SLF001
        super().build_extensions()

    def across_files(self) -> bool:
        """Try whether compiler and linker can optimise across files."""
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder) / "probe.c"
            probe.write_text("int probe(void);\nint probe(void) { return 0; }\n", encoding="utf-8")
            options = {"output_dir": folder, "extra_postargs": list(OPTIMISED)}
            try:
                objects = self.compiler.compile([str(probe)], **options)
                self.compiler.link_shared_object(objects, "probe.so", **options)
            except (CompileError, LinkError):
                return False
        return True

    def build_extension(self, ext: Extension) -> None:
        shared_temp = self.build_temp
        self.build_temp = str(Path(shared_temp) / ext.name)  # objects are compiled with ext's flags
        try:
            if ext.cffi_script:
                self._generate(ext)
            super().build_extension(ext)
        finally:
            self.build_temp = shared_temp

    def _generate(self, ext: Extension) -> None:
        """Write the C code of a cffi module; a file that would not change is left alone."""
        ffibuilder = runpy.run_path(str(ROOT / ext.cffi_script))["ffibuilder"]
        generated = Path(self.build_temp) / f"{ext.name.split('.')[-1]}.c"
        generated.parent.mkdir(parents=True, exist_ok=True)
        ffibuilder.emit_c_code(str(generated))
        ext.sources = [*ext.sources, str(generated)]
        if "tsemu" in ext.libraries:
            ext.library_dirs = [str(Path(self.get_ext_fullpath(LIBRARY)).parent)]


if __name__ == "__main__":
    PACKAGES = packages()
    setup(
        packages=list(PACKAGES),
        package_dir=PACKAGES,
        package_data=package_data(PACKAGES),
        include_package_data=False,
        ext_modules=extensions(),
        cmdclass={"build_ext": BuildExtensions},
        zip_safe=False,
    )
