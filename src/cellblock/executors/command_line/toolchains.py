"""How whole programs of many languages are compiled and run, with the sandbox's own programs.

The names are those of SandboxFusion.
"""

from __future__ import annotations

from dataclasses import dataclass

from .program import ProgramRun

_PYTHON = "python3 "


@dataclass(frozen=True)
class Toolchain:
    """The file of the code, and the commands that compile and run it in its folder.

    The first word of `compile`, or of `run`, must be installed.
    """

    file: str
    run: str
    compile: str = ""

    @property
    def program(self) -> str:
        """The program that has to be installed."""
        return (self.compile or self.run).partition(" ")[0]

    def run_program(self, memory_bytes: int | None) -> ProgramRun:
        """Return the program that runs the code. `memory_bytes` limits the address space."""
        is_script = self.run.startswith(_PYTHON)
        return ProgramRun(
            argv=self.run.split(),
            script=self.run.removeprefix(_PYTHON) if is_script else "",
            address_space=memory_bytes,
        )


TOOLCHAINS = {
    "python": Toolchain("main.py", "python3 main.py"),
    "pytest": Toolchain("test_main.py", "pytest -q test_main.py"),
    "bash": Toolchain("main.sh", "bash main.sh"),
    "nodejs": Toolchain("main.js", "node main.js"),
    "typescript": Toolchain("main.ts", "tsx main.ts"),
    "c": Toolchain("main.c", "./main", "gcc -O2 main.c -o main -lm"),
    "cpp": Toolchain("main.cpp", "./main", "g++ -std=c++17 -O2 main.cpp -o main"),
    "go": Toolchain("main.go", "./main", "go build -o main main.go"),
    "java": Toolchain("Main.java", "java -cp . Main", "javac Main.java"),
    "rust": Toolchain("main.rs", "./main", "rustc -O main.rs -o main"),
    "php": Toolchain("main.php", "php main.php"),
    "perl": Toolchain("main.pl", "perl main.pl"),
    "ruby": Toolchain("main.rb", "ruby main.rb"),
    "lua": Toolchain("main.lua", "lua main.lua"),
    "R": Toolchain("main.R", "Rscript main.R"),
}
