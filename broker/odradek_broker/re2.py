"""Regular expressions in RE2's syntax, compiled to programs (rule G-117).

Clients send expressions (KIP-848, KIP-1152), and some expressions make Python's matcher run for an
exponential time. A program (`Pattern`) follows all alternatives at the same time, as in Thompson's
construction, so that the time is at most proportional to the length of the text times the length of
the program. Back references and look-around, which need memory, are not supported, as in RE2. A
name must match as a whole.

The syntax: literals, `.`, classes (with ranges, negation, POSIX names, `\\d \\w \\s` and their
opposites), groups of every kind, flags `i s m U` (m and U change nothing for a whole match of one
line), alternatives, `* + ? {n,m}` greedy or not, the anchors `^ $ \\A \\z`, `\\b \\B`, `\\Q...\\E`,
Unicode classes (`\\pL`, `\\p{Greek}`), and escapes of characters. A script (`\\p{Greek}`) is only
compared with ASCII characters, which names of topics consist of: other characters belong to no
script. As in Kafka's library (RE2/J), a `{` that begins no repetition is a literal, but cannot be
repeated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache
from string import hexdigits
from unicodedata import category

from odradek_protocol.lazy_dataclass import dataclass

CharacterTest = Callable[[str], bool]

#: Called with a text and a position in it.
Assertion = Callable[[str, int], bool]


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction, which takes a character, checks a condition of the position, or only
    continues.

    `targets`: the instructions that follow, by number.
    """

    test: CharacterTest | None = None
    assertion: Assertion | None = None
    targets: tuple[int, ...] = ()


class Pattern:
    """A compiled expression: a program that follows all alternatives at the same time."""

    def __init__(self, program: list[Instruction], start: int, end: int) -> None:
        self._program = program
        self._start = start
        self._end = end

    def matches(self, name: str) -> bool:
        """True if the whole name matches."""
        now = self._reach([self._start], name, 0)
        for position, character in enumerate(name):
            after: list[int] = []
            for at in now:
                test = self._program[at].test
                if test is not None and test(character):
                    after += self._program[at].targets
            now = self._reach(after, name, position + 1)
            if not now:
                return False
        return self._end in now

    def select(self, names: Iterable[str]) -> frozenset[str]:
        """The names that match."""
        return frozenset(name for name in names if self.matches(name))

    def _reach(self, starts: Iterable[int], name: str, position: int) -> set[int]:
        """Every instruction that is reached without taking a character."""
        seen: set[int] = set()
        todo = list(starts)
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            instruction = self._program[at]
            if instruction.test is not None:
                continue
            if instruction.assertion is None or instruction.assertion(name, position):
                todo += instruction.targets
        return seen


def is_word(character: str) -> bool:
    """True for an ASCII letter, an ASCII digit, and "_"."""
    return character.isascii() and (character.isalnum() or character == "_")


def _is_digit(character: str) -> bool:
    return character.isascii() and character.isdigit()


def _is_space(character: str) -> bool:
    return character in "\t\n\f\r "


def negated(test: CharacterTest) -> CharacterTest:
    """The opposite of `test`: a character passes one of the two tests and fails the other."""
    return lambda character: not test(character)


#: The test of each Perl class, keyed by the letter after the backslash; the upper-case letter means
#: the opposite.
PERL_CLASSES: dict[str, CharacterTest] = {"d": _is_digit, "w": is_word, "s": _is_space}

#: The test of each POSIX class, keyed by the name in `[[:name:]]`.
POSIX_CLASSES: dict[str, CharacterTest] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "blank": lambda c: c in "\t ",
    "cntrl": lambda c: c.isascii() and not c.isprintable(),
    "digit": _is_digit,
    "graph": lambda c: c.isascii() and c.isprintable() and c != " ",
    "lower": lambda c: c.isascii() and c.islower(),
    "upper": lambda c: c.isascii() and c.isupper(),
    "print": lambda c: c.isascii() and c.isprintable(),
    "punct": lambda c: c.isascii() and c.isprintable() and not c.isalnum() and c != " ",
    "space": lambda c: c in "\t\n\v\f\r ",
    "word": is_word,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}

#: The general categories that RE2/J knows: the first letters, and the names with two letters.
_CATEGORIES = (
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So"
    " Z Zl Zp Zs"
)
CATEGORIES = frozenset(_CATEGORIES.split())

#: The scripts that RE2/J knows and that have no ASCII character.
_SCRIPTS = (
    "Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid"
    " Canadian_Aboriginal Carian Cham Cherokee Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari"
    " Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul"
    " Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi"
    " Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Lepcha"
    " Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar"
    " New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya"
    " Osmanya Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese"
    " Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai"
    " Tibetan Tifinagh Ugaritic Unknown Vai Yi"
)
FOREIGN_SCRIPTS = frozenset(_SCRIPTS.split())

#: The characters outside of ASCII that a comparison without case takes for an ASCII letter.
_OTHER_CASES = {"s": "\u017f", "k": "\u212a"}

#: The control character of each escape, keyed by the letter after the backslash.
CONTROL_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


def _unicode_class(name: str) -> CharacterTest | None:
    """The test of a general category or a script, by its name; None if there is none with the
    name."""
    if name == "Any":
        return lambda _: True
    if name in CATEGORIES:
        return lambda character: category(character).startswith(name)
    if name == "Latin":
        return lambda character: character.isascii() and character.isalpha()
    if name == "Common":
        return lambda character: character.isascii() and not character.isalpha()
    return (lambda _: False) if name in FOREIGN_SCRIPTS else None


def at_start(name: str, position: int) -> bool:
    """True at `^` and `\\A`."""
    return position == 0


def at_end(name: str, position: int) -> bool:
    """True at `$` and `\\z`."""
    return position == len(name)


def at_boundary(name: str, position: int) -> bool:
    """True at `\\b`."""
    before = position > 0 and is_word(name[position - 1])
    after = position < len(name) and is_word(name[position])
    return before != after


def not_at_boundary(name: str, position: int) -> bool:
    """True at `\\B`."""
    return not at_boundary(name, position)


PATTERN_CHARACTERS_MAX = 4_096

#: The limit of the instructions of a compiled expression. Repetitions multiply instructions.
PROGRAM_STEPS_MAX = 5_000
_REPEAT_MAX = 1_000
#: The maximum number of characters and parts that are parsed. A repeated part is parsed again, but
#: not the classes in it.
_READ_MAX = 100_000
_NESTING_MAX = 100
_PATTERNS_KEPT = 256
_FLAGS = frozenset("imsU-")
_LAST = chr(0x10FFFF)


class PatternError(ValueError):
    """A text that is no regular expression in this syntax; the message has the reason and the
    position."""


@lru_cache(maxsize=_PATTERNS_KEPT)
def compile_pattern(text: str) -> Pattern:
    """Compile an expression. Raises PatternError for an invalid expression."""
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise PatternError(f"it has {len(text)} characters; at most {PATTERN_CHARACTERS_MAX}")
    return _Parser(text).pattern()


def _cases(character: str) -> set[str]:
    """The character and its other cases. Cases of several characters are left out."""
    lower = character.lower()
    cases = {character, lower, character.upper(), _OTHER_CASES.get(lower, lower)}
    return {case for case in cases if len(case) == 1}


def _tabled(test: CharacterTest) -> CharacterTest:
    """The test with a table of its ASCII characters, which is made at the first use."""
    table: frozenset[str] | None = None

    def tabled(character: str) -> bool:
        nonlocal table
        if character >= "\x80":
            return test(character)
        if table is None:
            table = frozenset(filter(test, map(chr, range(128))))
        return character in table

    return tabled


def _merged(ranges: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The ranges in order, without overlaps."""
    merged: list[tuple[str, str]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return merged


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a program under construction: the numbers of its first and last instructions."""

    start: int
    end: int


class _Parser:
    """Reads an expression and writes its program."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0
        self.ignore_case = False
        self.any_character = False
        self.steps: list[Instruction] = []
        #: The position of each named group; a repeated group is parsed again.
        self.names: dict[str, int] = {}
        #: The test of each class and its end, by its start and the flag for upper and lower case.
        self.classes: dict[tuple[int, bool], tuple[CharacterTest, int]] = {}
        self.read = 0

    def pattern(self) -> Pattern:
        part = self._alternatives()
        if self.at < len(self.text):
            raise self._error("a ) without its (")
        return Pattern(self.steps, part.start, part.end)

    # --- The text ---

    def _error(self, problem: str) -> PatternError:
        return PatternError(f"{problem} at character {self.at + 1} of {self.text[:200]!r}")

    def _peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def _take(self, text: str) -> bool:
        if not self._peek(text):
            return False
        self.at += len(text)
        return True

    def _next(self) -> str:
        if self.at >= len(self.text):
            raise self._error("more was expected")
        self.at += 1
        self._count_read()
        return self.text[self.at - 1]

    def _count_read(self) -> None:
        self.read += 1
        if self.read > _READ_MAX:
            raise self._error("too many repetitions of long parts")

    # --- The program ---

    def _add(self, step: Instruction) -> int:
        if len(self.steps) >= PROGRAM_STEPS_MAX:
            raise self._error(f"more than {PROGRAM_STEPS_MAX} steps")
        self.steps.append(step)
        return len(self.steps) - 1

    def _empty(self) -> _Part:
        at = self._add(Instruction())
        return _Part(at, at)

    def _lead(self, source: int, *targets: int) -> None:
        step = self.steps[source]
        self.steps[source] = Instruction(step.test, step.assertion, step.targets + targets)

    def _one(self, test: CharacterTest) -> _Part:
        end = self._add(Instruction())
        return _Part(self._add(Instruction(test=test, targets=(end,))), end)

    def _where(self, assertion: Assertion) -> _Part:
        end = self._add(Instruction())
        return _Part(self._add(Instruction(assertion=assertion, targets=(end,))), end)

    def _literal(self, character: str) -> _Part:
        if self.ignore_case:
            folded = character.casefold()
            return self._one(lambda given: given.casefold() == folded)
        return self._one(lambda given: given == character)

    # --- The grammar ---

    def _alternatives(self) -> _Part:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        end = self._add(Instruction())
        start = self._add(Instruction(targets=tuple(part.start for part in parts)))
        for part in parts:
            self._lead(part.end, end)
        return _Part(start, end)

    def _sequence(self) -> _Part:
        whole = self._empty()
        while self.at < len(self.text) and not self._peek("|") and not self._peek(")"):
            self._count_read()
            parts = self._quoted() if self._take("\\Q") else [self._repeated(self._atom)]
            for part in parts:
                self._lead(whole.end, part.start)
                whole = _Part(whole.start, part.end)
        return whole

    def _quoted(self) -> list[_Part]:
        """The characters up to \\E. A repetition after \\E is of the last character."""
        close = self.text.find("\\E", self.at)
        end = close if close >= 0 else len(self.text)
        if self.at == end:
            self._take("\\E")
            return []
        parts = []
        while self.at < end - 1:
            parts.append(self._literal(self._next()))
        return [*parts, self._repeated(self._last_quoted)]

    def _last_quoted(self) -> _Part:
        part = self._literal(self._next())
        self._take("\\E")
        return part

    def _repeated(self, atom: Callable[[], _Part]) -> _Part:
        """A part and the repetition after it, if there is one. `atom` parses the part."""
        start, flags = self.at, (self.ignore_case, self.any_character)
        part = atom()
        done = self.at
        bounds = self._bounds()
        if bounds is None:
            return part
        repeated = self.text[start:done]
        if repeated == "{" or (repeated.startswith("(?") and set(repeated[2:-1]) <= _FLAGS):
            raise self._error(f"a repetition of {repeated[:20]}")
        least, most = bounds
        after = self.at

        def again() -> _Part:
            # Each repetition needs separate instructions, so the part is parsed again.
            self.at, (self.ignore_case, self.any_character) = start, flags
            made = atom()
            self.at = done
            return made

        whole = self._empty()
        for time in range(least):
            copy = part if time == 0 else again()
            self._lead(whole.end, copy.start)
            whole = _Part(whole.start, copy.end)
        if most is None:
            whole = self._loop(whole, part if least == 0 else again())
        else:
            whole = self._optional(whole, most - least, part if least == 0 else None, again)
        self.at = after
        if self._bounds() is not None:
            raise self._error("a repetition of a repetition")
        return whole

    def _loop(self, whole: _Part, part: _Part) -> _Part:
        end = self._add(Instruction())
        self._lead(whole.end, part.start, end)
        self._lead(part.end, part.start, end)
        return _Part(whole.start, end)

    def _optional(
        self, whole: _Part, times: int, part: _Part | None, again: Callable[[], _Part]
    ) -> _Part:
        end = self._add(Instruction())
        for _ in range(times):
            copy = part or again()
            part = None
            self._lead(whole.end, copy.start, end)
            whole = _Part(whole.start, copy.end)
        self._lead(whole.end, end)
        return _Part(whole.start, end)

    def _bounds(self) -> tuple[int, int | None] | None:
        """Parse a repetition: (least number, largest number). The largest number is None if there
        is no limit. Returns None instead of the pair if no repetition follows."""
        found: tuple[int, int | None] | None = None
        if self._take("*"):
            found = (0, None)
        elif self._take("+"):
            found = (1, None)
        elif self._take("?"):
            found = (0, 1)
        elif self._peek("{"):
            found = self._counted()
        if found is not None:
            # Greediness changes which match is found, but not whether there is a match.
            self._take("?")
        return found

    def _counted(self) -> tuple[int, int | None] | None:
        close = self.text.find("}", self.at)
        least, comma, most = self.text[self.at + 1 : max(close, self.at + 1)].partition(",")
        digits = least + most
        if not least or not (digits.isascii() and digits.isdigit()):
            return None
        if any(len(each) > 1 and each[0] == "0" for each in (least, most)):
            return None
        if len(digits) > 12:
            raise self._error("a repetition out of bounds")
        low = int(least)
        high = None if comma and not most else int(most or least)
        if low > _REPEAT_MAX or (high or 0) > _REPEAT_MAX or (high is not None and high < low):
            raise self._error("a repetition out of bounds")
        self.at = close + 1
        return low, high

    def _atom(self) -> _Part:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._one(self._class_once())
        if character == ".":
            every = self.any_character
            return self._one(lambda given: every or given != "\n")
        if character == "^":
            return self._where(at_start)
        if character == "$":
            return self._where(at_end)
        if character == "\\":
            return self._escape()
        self.at -= 1
        if self._bounds() is not None:
            raise self._error("a repetition of nothing")
        self.at += 1
        return self._literal(character)

    def _escape(self) -> _Part:
        character = self._next()
        test = self._known_class(character)
        if test is not None:
            return self._one(_tabled(test))
        places = {"A": at_start, "z": at_end, "b": at_boundary, "B": not_at_boundary}
        if character in places:
            return self._where(places[character])
        return self._literal(self._escaped(character))

    def _known_class(self, character: str) -> CharacterTest | None:
        """The test of the class after a backslash; None if it is no class."""
        if character not in "pP":
            perl = PERL_CLASSES.get(character.lower())
            return None if perl is None else self._folded(perl, opposite=character.isupper())
        name = self._next()
        if name == "{":
            close = self.text.find("}", self.at)
            if close < 0:
                raise self._error("a \\p{ without its }")
            name = self.text[self.at : close]
            self.at = close + 1
        test = _unicode_class(name.removeprefix("^"))
        if test is None:
            raise self._error(f"the Unicode class {name[:20]} is not known")
        return self._folded(test, opposite=name.startswith("^") != (character == "P"))

    def _folded(self, test: CharacterTest, *, opposite: bool = False) -> CharacterTest:
        """The test with the flag for upper and lower case, and then its opposite."""
        folded = test
        if self.ignore_case:

            def folded(character: str) -> bool:
                return any(map(test, _cases(character)))

        return negated(folded) if opposite else folded

    def _escaped(self, character: str) -> str:
        """The character that an escape means."""
        if character in CONTROL_CHARACTERS:
            return CONTROL_CHARACTERS[character]
        if character == "x":
            return self._hexadecimal()
        if character == "0" or (character in "1234567" and self._octal_digit()):
            digits = character
            while len(digits) < 3 and self._octal_digit():
                digits += self._next()
            return chr(int(digits, 8))
        if not (character.isascii() and character.isalnum()):
            return character
        self.at -= 1
        raise self._error(f"\\{character} is not known")

    def _octal_digit(self) -> bool:
        """True if an octal digit follows."""
        return self.at < len(self.text) and self.text[self.at] in "01234567"

    def _hexadecimal(self) -> str:
        if self._take("{"):
            close = self.text.find("}", self.at)
            if close < 0:
                raise self._error("a \\x{ without its }")
            digits = self.text[self.at : close]
            self.at = close + 1
        else:
            digits = self.text[self.at : self.at + 2].ljust(2, "?")
            self.at += 2
        try:
            if set(digits) <= set(hexdigits):
                return chr(int(digits, 16))
        except (ValueError, OverflowError):
            pass
        raise self._error(f"\\x{digits[:10]} is no character")

    def _group(self) -> _Part:
        self.depth += 1
        if self.depth > _NESTING_MAX:
            raise self._error(f"more than {_NESTING_MAX} groups in each other")
        flags = (self.ignore_case, self.any_character)
        only_flags = self._take("?") and self._group_kind()
        if only_flags:
            self.depth -= 1
            return self._empty()
        part = self._alternatives()
        if not self._take(")"):
            raise self._error("a ( without its )")
        self.ignore_case, self.any_character = flags
        self.depth -= 1
        return part

    def _group_kind(self) -> bool:
        """Parse the characters after `(?`; True for flags that apply to the rest of the group, as
        in `(?i)`."""
        if self._take("P<") or (self._take("<") and not (self._peek("=") or self._peek("!"))):
            close = self.text.find(">", self.at)
            name = self.text[self.at : max(close, self.at)]
            known = self.names.get(name) == self.at
            if not known and not (name and all(map(is_word, name))):
                raise self._error("a group without a name")
            if self.names.setdefault(name, self.at) != self.at:
                raise self._error(f"another group named {name}")
            self.at = close + 1
            return False
        value, complete = True, True
        while True:
            character = self._next()
            if character in "):" and complete:
                return character == ")"
            # After a minus, at least one flag must follow.
            complete = character != "-"
            if character == "-" and value:
                value = False
            elif character == "i":
                self.ignore_case = value
            elif character == "s":
                self.any_character = value
            elif character not in "mU":
                self.at -= 1
                raise self._error(f"(?{character} is not known")

    # --- Classes ---

    def _class_once(self) -> CharacterTest:
        """The class after a `[`. If it was parsed before with the same flags, the test is the same
        object."""
        key = self.at, self.ignore_case
        if key not in self.classes:
            test = self._class()
            self.classes[key] = test, self.at
        test, self.at = self.classes[key]
        return test

    def _class(self) -> CharacterTest:
        negative = self._take("^")
        characters: set[str] = set()
        ranges: set[tuple[str, str]] = set()
        named: dict[str, CharacterTest] = {}
        first = True
        while first or not self._peek("]"):
            if self.at >= len(self.text):
                raise self._error("a [ without its ]")
            start = self.at
            item = self._class_item()
            if isinstance(item, tuple):
                ranges.add(item)
            elif isinstance(item, str):
                characters.add(item)
            else:
                named[self.text[start : self.at]] = item
            first = False
        self.at += 1
        merged = _merged(ranges)
        tests = tuple(named.values())

        def plain(character: str) -> bool:
            at = bisect_right(merged, (character, _LAST)) - 1
            return character in characters or (at >= 0 and character <= merged[at][1])

        folded = self._folded(plain)

        def within(character: str) -> bool:
            return (folded(character) or any(test(character) for test in tests)) != negative

        return _tabled(within)

    def _class_item(self) -> str | tuple[str, str] | CharacterTest:
        """A character, a range of characters, or the test of a class in the class."""
        if self._peek("[:") and self.text.find(":]", self.at) >= 0:
            return self._named_class()
        low = self._next()
        if low == "\\":
            kind = self._next()
            known = self._known_class(kind)
            if known is not None:
                return known
            low = self._escaped(kind)
        if not self._peek("-") or self._peek("-]"):
            return low
        self.at += 1
        high = self._next()
        if high == "\\":
            high = self._escaped(self._next())
        if high < low:
            raise self._error(f"the range {low!r}-{high!r} is empty")
        return low, high

    def _named_class(self) -> CharacterTest:
        close = self.text.find(":]", self.at)
        name = self.text[self.at + 2 : max(close, self.at + 2)]
        test = POSIX_CLASSES.get(name.removeprefix("^"))
        if test is None:
            raise self._error(f"[:{name[:20]}:] is not known")
        self.at = close + 2
        return self._folded(test, opposite=name.startswith("^"))
