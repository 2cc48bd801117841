"""The compiler driver: caching by content, its errors, and many processes at once."""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cora.emit import cbuild
from cora.emit.cbuild import build_program, build_shared, load_shared
from cora.errors import CoraError, Kind

pytestmark = pytest.mark.needs("gcc")

ANSWER = {"a.c": '#include "a.h"\nint answer(void) { return VALUE; }\n', "a.h": "#define VALUE 42\n"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("CORA_CACHE_DIR", str(folder))
    monkeypatch.delenv("CC", raising=False)
    cbuild._find_compiler.cache_clear()
    return folder


def logging_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CC becomes a script that notes each start and then is gcc; returns the notes."""
    log, script = tmp_path / "log", tmp_path / "my cc"
    log.touch()
    script.write_text(f'#!/bin/sh\necho "$@" >> "{log}"\nexec gcc "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CC", f"'{script}' -g0")
    return log


def failure(kind: Kind) -> str:
    with pytest.raises(CoraError) as caught:
        build_shared("answer", ANSWER, ("-O1",))
    assert caught.value.diagnostics[0].kind is kind
    return caught.value.render()


def test_shared_library_works(cache: Path) -> None:
    path = build_shared("answer", ANSWER, ("-O1",))
    assert path.is_relative_to(cache)
    assert load_shared(path).answer() == 42
    assert [p for p in cache.rglob("*") if p.is_file() and p.suffix != ".txt"] == [path]


def test_program_works_with_libraries(cache: Path) -> None:
    text = "#include <math.h>\n#include <stdio.h>\nint main(int c, char **v) { (void)v; printf(\"%g\", cos(c - 1)); }\n"
    program = build_program("cosine", {"m.c": text}, ("-lm", "-Wall", "-Werror"))
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "1"


def test_second_build_starts_no_compiler(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging_compiler(tmp_path, monkeypatch)
    first = build_shared("answer", ANSWER, ("-O1",))
    starts = log.read_text()
    assert len(starts.splitlines()) == 2  # the version and the build
    cbuild._find_compiler.cache_clear()  # as in a new process
    assert build_shared("answer", ANSWER, ("-O1",)) == first
    assert log.read_text() == starts


def test_everything_that_matters_changes_the_name(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = tmp_path / "include"
    headers.mkdir()
    (headers / "b.h").write_text("#define B 1\n")
    paths = [
        build_shared("answer", ANSWER, ("-O1",)),
        build_shared("other", ANSWER, ("-O1",)),
        build_shared("answer", ANSWER, ("-O2",)),
        build_shared("answer", {**ANSWER, "a.h": "#define VALUE 43\n"}, ("-O1",)),
        build_shared("answer", ANSWER, ("-O1",), include_dirs=[headers]),
    ]
    (headers / "b.h").write_text("#define B 2\n")
    paths.append(build_shared("answer", ANSWER, ("-O1",), include_dirs=[headers]))
    logging_compiler(tmp_path, monkeypatch)
    paths.append(build_shared("answer", ANSWER, ("-O1",)))
    assert len(set(paths)) == len(paths)
    assert [load_shared(path).answer() for path in paths] == [42, 42, 42, 43, 42, 42, 42]


def test_native_flags_bind_the_result_to_the_processor(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_shared("answer", ANSWER, ("-march=native",))
    plain = build_shared("answer", ANSWER, ())
    monkeypatch.setattr(cbuild, "cpu_model", lambda: "another processor")
    assert build_shared("answer", ANSWER, ("-march=native",)) != first
    assert build_shared("answer", ANSWER, ()) == plain


def test_a_new_compiler_under_the_old_name_is_noticed(cache: Path, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    logging_compiler(tmp_path, monkeypatch)
    first = build_shared("answer", ANSWER, ())
    script = tmp_path / "my cc"
    newer = '[ "$1" = --version ] && echo "newcc 99" && exit 0\nexec gcc'
    script.write_text(script.read_text().replace("exec gcc", newer))
    cbuild._find_compiler.cache_clear()
    assert build_shared("answer", ANSWER, ()) != first


def test_no_compiler(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    text = failure(Kind.NO_COMPILER)
    assert "'no-such-compiler' was not found" in text
    assert "apt-get install gcc" in text
    monkeypatch.setenv("CC", "'unclosed")
    assert "is not a command" in failure(Kind.NO_COMPILER)
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no C compiler was found" in failure(Kind.NO_COMPILER)
    monkeypatch.setenv("CC", "")
    assert "no C compiler was found" in failure(Kind.NO_COMPILER)


def test_compiler_that_cannot_start(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    assert "cannot be started" in failure(Kind.NO_COMPILER)


def test_wrong_source_shows_the_first_lines(cache: Path) -> None:
    text = "".join(f"int f{i}(void) {{ return missing{i}; }}\n" for i in range(30))
    with pytest.raises(CoraError) as caught:
        build_shared("wrong", {"wrong.c": text}, ("-O1",))
    shown = caught.value.render()
    assert caught.value.diagnostics[0].kind is Kind.COMPILER_FAILED
    assert "could not build wrong" in shown
    assert "wrong.c:1:" in shown
    assert "more lines" in shown
    assert "missing29" not in shown
    assert [p for p in cache.rglob("*") if p.is_file() and p.suffix != ".txt"] == []
    assert list((cache / "native").iterdir()) == []


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    obstacle = tmp_path / "file"
    obstacle.touch()
    monkeypatch.setenv("CORA_CACHE_DIR", str(obstacle / "cache"))
    text = failure(Kind.CACHE_UNWRITABLE)
    assert str(obstacle) in text
    assert "CORA_CACHE_DIR" in text


def test_default_place_is_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cbuild.cache_dir() == tmp_path / "cora"


def test_cache_is_the_users_own(cache: Path) -> None:
    path = build_shared("answer", ANSWER, ())
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0


def test_library_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "bad.so"
    path.write_bytes(b"not a library")
    with pytest.raises(CoraError) as caught:
        load_shared(path)
    assert caught.value.diagnostics[0].kind is Kind.CACHE_UNWRITABLE
    assert str(path) in caught.value.render()


def test_many_processes_build_the_same_at_once(cache: Path) -> None:
    code = (
        "from cora.emit.cbuild import build_shared, load_shared\n"
        f"print(load_shared(build_shared('answer', {ANSWER!r}, ('-O1',))).answer())\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
                for _ in range(4)]
    assert [child.communicate()[0].strip() for child in children] == ["42"] * 4
    assert len(list((cache / "native").iterdir())) == 1


def test_finished_results_are_used_from_a_read_only_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build_shared("answer", ANSWER, ())

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing is compiled or written again")

    monkeypatch.setattr(cbuild, "_compile", refuse)
    assert build_shared("answer", ANSWER, ()) == path
    assert ctypes.CDLL(str(path)).answer() == 42


@pytest.mark.parametrize("damage", [0, 100, 8192, -1])
def test_a_damaged_result_is_built_again(cache: Path, damage: int) -> None:
    made = build_shared("answer", ANSWER, [])
    whole = made.read_bytes()
    made.unlink()  # the loaded file of another process stays as it is
    made.write_bytes(whole[:damage])
    again = build_shared("answer", ANSWER, [])
    assert again == made and made.read_bytes()[:100] == whole[:100]
    assert load_shared(again).answer() == 42


def test_left_overs_of_killed_builds_go(cache: Path) -> None:
    left = cache / "native" / ".build-killed"
    left.mkdir(parents=True)
    (left / "part.c").write_text("int x;\n")
    os.utime(left, (1, 1))
    build_shared("answer", ANSWER, [])
    assert not left.exists()


def test_sources_that_are_no_utf8_are_kept_as_they_are(cache: Path) -> None:
    odd = {"a.c": "/* \udcff.nf */\nint answer(void) { return 7; }\n"}
    assert load_shared(build_shared("answer", odd, [])).answer() == 7
