# SPDX-License-Identifier: Apache-2.0
"""Completions for bash, zsh and fish: scripts that know all verbs and options, so that a key press starts no Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from .commands import Flag, Verb

Lines = Iterator[str]


def bash(verbs: Sequence[Verb]) -> Lines:
    yield from (
        "# bash completion of memc; made by `memc completion bash`.",
        "_memc() {",
        "  local cur prev verb='' i",
        "  COMPREPLY=()",
        "  cur=${COMP_WORDS[COMP_CWORD]}",
        "  prev=${COMP_WORDS[COMP_CWORD - 1]}",
        "  # bash takes --option=value apart into three words.",
        "  if [[ $cur == '=' ]]; then cur=''; elif [[ $prev == '=' ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi",
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        "    if [[ ${COMP_WORDS[i]} != -* ]]; then verb=${COMP_WORDS[i]}; break; fi",
        "  done",
        "  if [[ -z $verb ]]; then",
        f'    COMPREPLY=($(compgen -W "{" ".join([*(verb.name for verb in verbs), "--help", "--version"])}" -- "$cur"))',
        "    return",
        "  fi",
        '  case "$verb $prev" in',
    )
    for verb in verbs:
        for flag in verb.flags:
            if flag.metavar is None or flag.is_file:
                continue
            patterns = "|".join(f'"{verb.name} {name}"' for name in flag.names)
            words = f'COMPREPLY=($(compgen -W "{" ".join(flag.choices)}" -- "$cur")); ' if flag.choices else ""
            yield f"    {patterns}) {words}return ;;"
    yield from ("  esac", "  if [[ $cur == -* ]]; then", "    case $verb in")
    for verb in verbs:
        names = " ".join(name for flag in verb.flags for name in flag.names)
        yield f'      {verb.name}) COMPREPLY=($(compgen -W "{names}" -- "$cur")) ;;'
    yield from (
        "    esac",
        "    return",
        "  fi",
        "  local IFS=$'\\n'",
        "  compopt -o filenames 2>/dev/null",
        '  COMPREPLY=($(compgen -f -- "$cur"))',
        "}",
        "complete -F _memc memc",
    )


def zsh(verbs: Sequence[Verb]) -> Lines:
    yield from ("#compdef memc", "# zsh completion of memc; made by `memc completion zsh`.", "_memc() {")
    yield "  local -a verbs=("
    yield from (f"    {_quoted(f'{verb.name}:{_escaped(verb.help)}')}" for verb in verbs)
    yield from (
        "  )",
        "  if (( CURRENT == 2 )); then",
        "    _describe 'command' verbs",
        "    _arguments '--help[Show the help]' '--version[Print the version]'",
        "    return",
        "  fi",
        "  local verb=$words[2]",
        "  shift words",
        "  (( CURRENT-- ))",
        "  case $verb in",
    )
    for verb in verbs:
        yield f"    {verb.name})"
        yield "      _arguments -s \\"
        for flag in verb.flags:
            yield from (f"        {_quoted(spec)} \\" for spec in _zsh_specs(flag))
        yield "        '*:file:_files' ;;"
    yield from (
        "  esac",
        "}",
        'if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _memc "$@"; else compdef _memc memc; fi',
    )


def _zsh_specs(flag: Flag) -> Iterator[str]:
    value = ""
    if flag.metavar is not None:
        action = f"({' '.join(flag.choices)})" if flag.choices else "_files" if flag.is_file else " "
        value = f":{_escaped(flag.metavar)}:{action}"
    for name in flag.names:
        joined = "=" if value and name.startswith("--") else ""
        yield f"*{name}{joined}[{_escaped(flag.help)}]{value}"


def _escaped(text: str) -> str:
    """Text within a specification of zsh's, whose own signs lose their meaning."""
    for sign in ("\\", "[", "]", ":"):
        text = text.replace(sign, f"\\{sign}")
    return text


def fish(verbs: Sequence[Verb]) -> Lines:
    yield "# fish completion of memc; made by `memc completion fish`."
    yield "complete -c memc -f -n __fish_use_subcommand -l version -d 'Print the version'"
    for verb in verbs:
        yield f"complete -c memc -f -n __fish_use_subcommand -a {verb.name} -d {_fish(verb.help)}"
    for verb in verbs:
        seen = f"-n '__fish_seen_subcommand_from {verb.name}'"
        for flag in verb.flags:
            longs = " ".join(f"-l {name[2:]}" for name in flag.names if name.startswith("--"))
            shorts = " ".join(f"-s {name[1:]}" for name in flag.names if not name.startswith("--") and len(name) == 2)
            value = ""
            if flag.metavar is not None:
                value = f" -x -a {_fish(' '.join(flag.choices))}" if flag.choices else " -r" if flag.is_file else " -x"
            yield f"complete -c memc {seen} {' '.join(filter(None, (longs, shorts)))}{value} -d {_fish(flag.help)}"


def _quoted(text: str) -> str:
    """Text in single quotes, as bash and zsh read them."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: Mapping[str, Callable[[Sequence[Verb]], Lines]] = {"bash": bash, "zsh": zsh, "fish": fish}
