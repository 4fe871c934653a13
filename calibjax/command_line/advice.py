"""The complete command that works, in the message of an error, where one is known."""

import shlex
from collections.abc import Callable, Sequence

from calibjax.command_line.tables import InputError, Options

_TRIES = 16


def advised(
    error: InputError, arguments: Sequence[str], read: Callable[[Sequence[str]], object]
) -> InputError:
    """The error, with a command line that has been tried, and that reads the files.

    Args:
        error: what is wrong with the files, or with the options.
        arguments: the command line that they came from.
        read: reads what a command line names, or raises an `InputError`.
    """
    waiting = [_with(arguments, x) for x in error.options]
    for _ in range(_TRIES):
        if not waiting:
            break
        candidate = waiting.pop(0)
        command = f"python -m calibjax {shlex.join(candidate)}"
        if not command.isprintable() or " ".join(command.split()) != command:
            continue  # a message is one line
        try:
            read(candidate)
        except InputError as another:
            waiting[:0] = [_with(candidate, x) for x in another.options]
        else:
            return InputError(f"{error}; try: {command}")
    return error


def _with(arguments: Sequence[str], options: Options) -> list[str]:
    """A command line with further options, which count more than those before."""
    words: list[str] = []
    arguments = [*arguments]
    for option, values in options.items():
        place = arguments.index(option) if option in arguments else len(arguments)
        is_option = [x.startswith("--") for x in arguments[place + 1 : place + 3]]
        if is_option in ([False], [False, True]):  # it has one value
            del arguments[place : place + 2]
        begins = any(x.startswith("-") for x in values)  # after an equals sign they are values, too
        words += [f"{option}={x}" for x in values] if begins else [option, *values]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:end], *words, *arguments[end:]]
