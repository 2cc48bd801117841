"""The command line. One module a command, imported only when that command runs.

Exit codes: 0 success; 1 a budget is overrun, a verified plan differs from its program, or a program that ran was
killed; 2 something wrong with the input, told in one message; 130 interrupted; 70 a defect of Cora.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from cora import __version__

if TYPE_CHECKING:
    from cora.errors import CoraError

# Name -> what it does, so that `cora --help` needs no other module.
COMMANDS = {
    "check": "Check an NF program; print its IR, its passes, its paths.",
    "profile": "Run a program on traffic and write what happens as a profile.",
    "size": "Tell how full tables get, and what size or time-out would do.",
    "traffic": "Make synthetic traffic as a capture.",
    "plan": "Decide what runs on the NIC and what on the host.",
    "show": "Print a saved plan.",
    "explain": "Say why a plan is as it is, and what would change it.",
    "diff": "Print what two plans do differently.",
    "compare": "Compare plans with the simple placements.",
    "report": "Write a plan as one self-contained HTML page.",
    "budget": "Print what each path costs; check it against a budget.",
    "robust": "Try a plan under other figures and traffic; find the traffic that hurts it most.",
    "verify": "Run a plan's parts in one process and compare them with the program.",
    "build": "Write the programs of a plan's places as a source tree.",
    "run": "Start a plan's programs on interfaces of this machine.",
    "status": "Print what running programs have done, and which halves are alive.",
    "state": "Read and replace the state of running programs.",
    "doctor": "Look for the tools that building and running plans needs.",
    "replay": "Run a program on traffic; write the packets and the state it leaves.",
    "trace": "Follow one packet through the program.",
    "nics": "List the NICs and their models; hold the models against published figures.",
    "calibrate": "Measure this machine's cores for the host model of plans.",
    "completion": "Print the shell completion script for bash, zsh or fish.",
}

EXIT_INPUT = 2
EXIT_DEFECT = 70
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
# What makes standard output unwritable without being a defect.
OUTPUT_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class ReaderGone(Exception):
    """The reader of our output has left (head, less)."""


class Commands(click.Group):
    """Finds commands by name in ``cora.cli.<name>``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All command names in the order of the main job."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"cora.cli.{cmd_name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Like click's, but click itself would turn a reader that has gone into exit code 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error

    def resolve_command(self, ctx: click.Context, args: list[str]
                        ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with a suggestion for a mistyped name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean '{near[0]}'?" if near else f" Commands: {', '.join(COMMANDS)}."
            ctx.fail(f"There is no command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list for --help, without importing a command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="cora")
def app() -> None:
    """Plans network functions across SmartNIC and host, from a program and real traffic.

    \b
    The main job:
      cora profile nat.nf trace.pcap -o profile.json
      cora plan nat.nf --profile profile.json --nic agilio-cx --rate 40Gbps -o plan.json

    Exit codes: 0 success, 1 a budget is overrun, a verified plan differs from its program, or a program that ran was
    killed, 2 something wrong with the input, 130 interrupted, 70 a defect of Cora.
    """


def main(args: list[str] | None = None) -> None:
    """Entry point: runs a command and turns every failure into one message and an exit code."""
    from cora.errors import CoraError, Kind, fail

    as_json = "--json" in (sys.argv[1:] if args is None else args)
    _open_closed_streams()
    if args is None:
        # Ends like any other way out, so that nothing half-written stays behind.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))
    try:
        _run(args)
    except CoraError as error:
        _refuse(error, as_json)
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
    except click.Abort:
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as error:
        _tell_json([_usage(error)]) if as_json else error.show()
        sys.exit(EXIT_INPUT)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except (BrokenPipeError, ReaderGone):
        _silence_stdout()
        sys.exit(0)
    except MemoryError:
        _refuse(fail(Kind.ENGINE_LIMIT, "there is not enough memory", hint="lower the capacities of the program's "
                     "states, or run on a machine with more memory"), as_json)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in OUTPUT_FAILURES and error.filename is None:
            _silence_stdout()
            _refuse(fail(Kind.CANNOT_WRITE, f"cannot write: {error.strerror}", where="standard output"), as_json)
        if os.environ.get("CORA_DEBUG"):
            raise
        message = f"this is a defect of Cora, not of your input: {type(error).__name__}: {error}"
        hint = "run it again with CORA_DEBUG=1 and report what it prints"
        _tell_json([{"code": None, "name": "defect", "message": message, "help": hint}]) if as_json else \
            _tell(f"error: {message}\nhelp: {hint}")
        sys.exit(EXIT_DEFECT)


def _run(args: list[str] | None) -> None:
    code = app.main(args=args, prog_name="cora", standalone_mode=False)
    sys.stdout.flush()
    if isinstance(code, int) and code:  # what a command left with by click's Exit
        sys.exit(code)


def _refuse(error: CoraError, as_json: bool) -> NoReturn:
    _tell_json([d.document() for d in error.diagnostics]) if as_json else _tell(error.render())
    sys.exit(EXIT_INPUT)


def _open_closed_streams() -> None:
    """A standard stream that the caller closed takes what is written to it and forgets it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open as long as the process


def _silence_stdout() -> None:
    """What is still buffered cannot be written; the interpreter must not try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: click.ClickException) -> dict[str, Any]:
    """A mistake that click found, in the form of the others."""
    from cora.errors import Diagnostic, Kind

    context = getattr(error, "ctx", None)
    hint = f"`{context.command_path} --help` shows how it is used" if context is not None else None
    return Diagnostic(Kind.BAD_FLAG, error.format_message(), hint=hint).document()


def _tell_json(errors: list[dict[str, Any]]) -> None:
    """Errors as data, on standard error too: standard output holds results only."""
    print(json.dumps({"errors": errors}, indent=1), file=sys.stderr)


def _tell(text: str) -> None:
    # no-color.org: any value switches colour off.
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        print(text, file=sys.stderr)
        return
    styled: list[Any] = []
    for line in text.splitlines():
        if ": error[" in line or line.startswith("error"):
            styled.append(click.style(line, fg="red", bold=True))
        elif line.startswith(("help:", "note:")):
            styled.append(click.style(line, fg="cyan"))
        else:
            styled.append(line)
    print("\n".join(styled), file=sys.stderr)
