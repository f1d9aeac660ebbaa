"""Bad words as a grammar: text that contains none of the given strings.

OpenVINO GenAI has no bad-words option, but it constrains decoding with a grammar (xgrammar's EBNF). The
strings that contain none of the words form a regular language: the automaton of Aho and Corasick (1975,
doi:10.1145/360825.360855) without its accepting states. Each of its states becomes a right-recursive rule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

__all__ = ["forbid"]


def forbid(words: Iterable[str]) -> str:
    """Return an EBNF grammar whose `root` matches exactly the texts without any of `words`.

    Args:
        words: non-empty strings.
    """
    goto, accepting = _automaton(list(words))
    alphabet = sorted({character for edges in goto for character in edges})
    rules = ["root ::= s0"]
    for state in range(len(goto)):
        if state in accepting:
            continue
        alternatives = ['""', f"[^{''.join(map(_in_class, alphabet))}] s0"]
        for character in alphabet:
            target = goto[state].get(character, goto[0].get(character, 0))
            if target not in accepting:
                alternatives.append(f"[{_in_class(character)}] s{target}")
        rules.append(f"s{state} ::= {' | '.join(alternatives)}")
    return "\n".join(rules) + "\n"


def _automaton(words: list[str]) -> tuple[list[dict[str, int]], set[int]]:
    """Return transitions over the words' characters (missing ones lead to 0) and accepting states."""
    trie: list[dict[str, int]] = [{}]
    accepting: set[int] = set()
    for word in words:
        state = 0
        for character in word:
            if character not in trie[state]:
                trie[state][character] = len(trie)
                trie.append({})
            state = trie[state][character]
        accepting.add(state)
    goto: list[dict[str, int]] = [dict(trie[0])] + [{} for _ in trie[1:]]
    fallback = [0] * len(trie)
    queue = deque(trie[0].values())
    while queue:
        state = queue.popleft()
        goto[state] = {**goto[fallback[state]], **trie[state]}
        if fallback[state] in accepting:
            accepting.add(state)
        for character, child in trie[state].items():
            fallback[child] = goto[fallback[state]].get(character, 0)
            queue.append(child)
    return goto, accepting


def _in_class(character: str) -> str:
    """Escape a character for use inside `[...]`."""
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else f"\\U{ord(character):08x}"
