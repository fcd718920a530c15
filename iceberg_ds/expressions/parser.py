"""Pure: parses predicates in Spark's SQL into a tree of calls, names and values.

The grammar is the part of Spark's `booleanExpression` that has one meaning for a row; its precedence is Spark's, too: a
comparison binds closer than `IS`, `IN`, `LIKE` and `BETWEEN`, so `a = b IN (TRUE)` is `(a = b) IN (TRUE)`, which SQL
libraries read differently. `binding` says what the tree means for the columns of a schema. Source: Spark's
`SqlBaseParser.g4`, and "Literals" and "Operators" of its SQL reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn

_EXAMPLE = "such as day >= '2026-11-01' AND region IN ('EU', 'US')"
_TESTS = "a comparison, IN, BETWEEN, LIKE or IS"
_OPERAND = "a column, a value or ("
# Deeper than any predicate written by hand, and shallow enough for Python's stack wherever a predicate is evaluated.
_DEEPEST = 40
_MOST_DIGITS = 38
_STRING = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\""
_TOKEN = re.compile(
    rf"""
      (?P<bytes>[xX](?:'[^']*'|"[^"]*"))
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<string>{_STRING})
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:BD|[LSYDF])?(?!\w))
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<name>[^\W\d]\w*)
    | (?P<sign><=>|::|\|\||<=|>=|<>|!=|==|!<|!>|[<>=!(),.+\-*/%&|^~])
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_COMMENT = re.compile(r"\s+|--(?:\\\n|[^\r\n])*|/\*")
_BRACKET = re.compile(r"/\*|\*/")
_COMPARISONS = {
    "=": "=",
    "==": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "!>": "<=",
    "<=": "<=",
    ">": ">",
    "!<": ">=",
    ">=": ">=",
    "<=>": "<=>",
}
_PRODUCTS = {"*": "*", "/": "/", "%": "%", "DIV": "div"}
_SUMS = {"+": "+", "-": "-"}
# Words that name no column unless they stand in backticks.
_WORDS = {"AND", "OR", "NOT", "IS", "NULL", "IN", "LIKE", "BETWEEN", "TRUE", "FALSE", "DIV", "ESCAPE"}
_TYPED_LITERALS = {"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "TIME"}
# What Spark parses and this parser does not, and what to write instead.
_REFUSED = {
    "CASE": "AND and OR",
    "EXISTS": "IN and the values",
    "SELECT": "IN and the values",
    "INTERVAL": "the date or the time itself",
    "RLIKE": "LIKE",
    "REGEXP": "LIKE",
    "ILIKE": "lower(...) LIKE",
}
_REFUSED_SIGNS = {"||": "LIKE", "&": "%", "|": "OR", "^": "<>", "~": "NOT"}
_IS = ("NULL", "UNKNOWN", "NAN", "TRUE", "FALSE")
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_SUFFIXES: dict[str, tuple[str, int]] = {"L": ("bigint", _LONG_MAX), "S": ("int", 2**15 - 1), "Y": ("int", 2**7 - 1)}
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
# LIKE reads these two itself.
_KEPT_ESCAPES = "%_"
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))|''|\"\"", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Name:
    """A column, or a field of a struct: the parts of its name."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A literal.

    Attributes:
        kind: Its type in Spark's words; for dates and times the word before the quotes.
        value: The value; for dates and times their text.
    """

    kind: str
    value: bool | int | float | Decimal | str | bytes | None


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, a test or a function, in lower case, and its operands.

    No test has the name of a function.
    """

    name: str
    operands: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class CastTo:
    """A cast, to a type in lower case and without blanks."""

    operand: Tree
    type_name: str


Tree = Name | Value | Call | CastTo


def texts_in(tree: Tree) -> Iterator[str]:
    """Yield the texts of all literals of a tree."""
    match tree:
        case Value(value=str() as text):
            yield text
        case CastTo(operand=operand):
            yield from texts_in(operand)
        case Call(operands=operands):
            for operand in operands:
                yield from texts_in(operand)


def parse_predicate(text: str) -> Tree:
    """Return the tree of the predicate in `text`.

    Names may stand in backticks, and must if they are keywords or hold characters other than letters, digits and
    underscores.

    Raises:
        ValueError: The text cannot be parsed.
    """
    try:
        return _Parser(text).parse()
    except RecursionError:
        raise ValueError("nests too deeply") from None


def names_in(tree: Tree) -> Iterator[tuple[str, ...]]:
    """Yield the parts of each name in a predicate."""
    match tree:
        case Name():
            yield tree.parts
        case Call():
            for operand in tree.operands:
                yield from names_in(operand)
        case CastTo():
            yield from names_in(tree.operand)


def predicate_text(text: str) -> str:
    """Return `text`, the text of a predicate; it is parsed again wherever the predicate is needed.

    Raises:
        ValueError: The text cannot be parsed.
    """
    parse_predicate(text)
    return text


@dataclass(frozen=True, slots=True)
class _Token:
    """A word, name, value or sign: `kind` is a group of `_TOKEN`, `word` or `end`."""

    kind: str
    text: str
    start: int


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = _skip(text, 0)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            _refuse("a column, a value or a sign", _Token("", text[position:], position))
        kind, word = str(match.lastgroup), match[0].upper()
        if kind == "name" and word in _WORDS:
            tokens.append(_Token("word", word, position))
        else:
            tokens.append(_Token(kind, match[0], position))
        position = _skip(text, match.end())
    return [*tokens, _Token("end", "", len(text))]


def _skip(text: str, position: int) -> int:
    """Return the position after blanks and comments; bracketed comments may be nested."""
    while (match := _COMMENT.match(text, position)) is not None:
        position, depth = match.end(), int(match[0] == "/*")
        while depth:
            bracket = _BRACKET.search(text, position)
            if bracket is None:
                _refuse("*/, which ends the comment,", _Token("end", "", len(text)))
            depth += 1 if bracket[0] == "/*" else -1
            position = bracket.end()
    return position


def _refuse(expected: str, found: _Token) -> NoReturn:
    what = f"character {found.start + 1}, {found.text[:20]!r}" if found.text else "its end"
    raise ValueError(f"cannot be read at {what}: it needs {expected} there; expected a predicate {_EXAMPLE}")


class _Parser:
    """Reads one predicate, by recursive descent."""

    def __init__(self, text: str) -> None:
        self._rest = _tokens(text)
        self._rest.reverse()
        self._depth = 0

    def parse(self) -> Tree:
        """Return the whole predicate."""
        tree = self._alternatives()
        if self._next.kind != "end":
            self._refuse_word()
            _refuse("AND, OR or the end", self._next)
        return tree

    @property
    def _next(self) -> _Token:
        return self._rest[-1]

    @property
    def _word(self) -> str:
        """The next token in upper case, empty if it is a value or a name in backticks."""
        return self._next.text.upper() if self._next.kind in ("word", "name", "sign") else ""

    def _takes(self, *words: str) -> bool:
        """Take the next words or signs if they are `words`."""
        ahead = [token.text.upper() for token in self._rest[: -len(words) - 1 : -1] if token.kind != "quoted"]
        if ahead != list(words):
            return False
        del self._rest[-len(words) :]
        return True

    def _need(self, word: str) -> None:
        if not self._takes(word):
            _refuse(word, self._next)

    def _refuse_word(self) -> None:
        """Refuse a next word that Spark parses here and this parser does not."""
        instead = _REFUSED.get(self._word) or _REFUSED_SIGNS.get(self._word)
        if instead is not None:
            start = self._next.start + 1
            raise ValueError(
                f"cannot be read at character {start}: {self._word} is not evaluated exactly as Spark does; "
                f"write it with {instead}, or give the rows a column with its outcome"
            )

    def _alternatives(self) -> Tree:
        return self._joined("OR", self._conjunction)

    def _conjunction(self) -> Tree:
        return self._joined("AND", self._negation)

    def _joined(self, word: str, part: Callable[[], Tree]) -> Tree:
        parts = [part()]
        while self._takes(word):
            parts.append(part())
        return Call(word.lower(), tuple(parts)) if len(parts) > 1 else parts[0]

    def _negation(self) -> Tree:
        if self._takes("NOT") or self._takes("!"):
            return Call("not", (self._deeper(self._negation),))
        return self._test()

    def _deeper(self, part: Callable[[], Tree]) -> Tree:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise RecursionError
        found = part()
        self._depth -= 1
        return found

    def _test(self) -> Tree:
        operand = self._comparison()
        if self._takes("IS"):
            return self._is(operand)
        is_negated = self._word == "NOT" and self._takes("NOT")
        if self._takes("BETWEEN"):
            low = self._comparison()
            self._need("AND")
            test = Call("and", (Call(">=", (operand, low)), Call("<=", (operand, self._comparison()))))
        elif self._takes("IN"):
            self._need("(")
            test = Call("in", (operand, *self._list()))
        elif self._takes("LIKE"):
            pattern = self._comparison()
            escape = self._string("ESCAPE and a sign in quotes") if self._takes("ESCAPE") else Value("string", "\\")
            test = Call("like", (operand, pattern, escape))
        else:
            self._refuse_word()
            if is_negated:
                _refuse(_TESTS, self._next)
            return operand
        return Call("not", (test,)) if is_negated else test

    def _is(self, operand: Tree) -> Tree:
        is_negated = self._takes("NOT")
        if self._takes("DISTINCT", "FROM"):
            test = Call("<=>", (operand, self._comparison()))
            return test if is_negated else Call("not", (test,))
        word = next((one for one in _IS if self._takes(one)), None)
        if word is None:
            _refuse("IS NULL, IS NAN, IS TRUE, IS FALSE, IS UNKNOWN or IS DISTINCT FROM", self._next)
        test = Call(f"is {word.lower()}", (operand,))
        return Call("not", (test,)) if is_negated else test

    def _comparison(self) -> Tree:
        return self._left_to_right(_COMPARISONS, self._sum)

    def _sum(self) -> Tree:
        return self._left_to_right(_SUMS, self._product)

    def _product(self) -> Tree:
        return self._left_to_right(_PRODUCTS, self._signed)

    def _left_to_right(self, operators: dict[str, str], part: Callable[[], Tree]) -> Tree:
        tree = part()
        while self._word in operators:
            tree = Call(operators[self._rest.pop().text.upper()], (tree, part()))
        return tree

    def _signed(self) -> Tree:
        if self._takes("+"):
            return self._deeper(self._signed)
        if self._word != "-":
            return self._cast_behind(self._operand())
        minus = self._rest.pop()
        if self._next.kind == "number":
            return self._cast_behind(_number(self._rest.pop(), minus))
        return Call("- of", (self._deeper(self._signed),))

    def _cast_behind(self, operand: Tree) -> Tree:
        while self._takes("::"):
            operand = CastTo(operand, self._type_name())
        return operand

    def _operand(self) -> Tree:  # noqa: PLR0911  # one return a kind
        token = self._next
        if self._takes("("):
            inner = self._deeper(self._alternatives)
            self._need(")")
            return inner
        self._refuse_word()
        if token.kind in ("name", "quoted"):
            return self._named()
        self._rest.pop()
        match token.kind, token.text:
            case "string" | "raw", _:
                return Value("string", self._adjacent(token))
            case "bytes", text:
                return Value("binary", _bytes(text, token))
            case "number", _:
                return _number(token, None)
            case "word", "TRUE" | "FALSE":
                return Value("boolean", token.text == "TRUE")
            case "word", "NULL":
                return Value("void", None)
            case _:
                _refuse(_OPERAND, token)

    def _adjacent(self, token: _Token) -> str:
        """Return the text of a literal and of the adjacent ones, which Spark joins into one."""
        text = _unquoted(token)
        while self._next.kind in ("string", "raw"):
            text += _unquoted(self._rest.pop())
        return text

    def _named(self) -> Tree:
        token = self._rest.pop()
        word = token.text.upper()
        if token.kind == "name":
            if word in _TYPED_LITERALS and self._next.kind in ("string", "raw"):
                return Value(word.lower(), _unquoted(self._rest.pop()))
            if self._next.text == "(":
                self._rest.pop()
                if word == "CAST":
                    return self._cast()
                return Call(word.lower(), () if self._takes(")") else self._list())
        parts = [_plain(token)]
        while self._takes("."):
            if self._next.kind not in ("name", "quoted", "word"):
                _refuse("a field of a struct", self._next)
            parts.append(_plain(self._rest.pop()))
        return Name(tuple(parts))

    def _list(self) -> tuple[Tree, ...]:
        """Return the list up to its closing bracket; the opening bracket is already read."""
        found = [self._deeper(self._alternatives)]
        while self._takes(","):
            found.append(self._deeper(self._alternatives))
        self._need(")")
        return tuple(found)

    def _cast(self) -> Tree:
        operand = self._deeper(self._alternatives)
        self._need("AS")
        cast = CastTo(operand, self._type_name())
        self._need(")")
        return cast

    def _type_name(self) -> str:
        if self._next.kind != "name":
            _refuse("a type", self._next)
        name = self._rest.pop().text.lower()
        if not self._takes("("):
            return name
        arguments = [self._rest.pop().text]
        while self._takes(","):
            arguments.append(self._rest.pop().text)
        self._need(")")
        return f"{name}({','.join(arguments)})"

    def _string(self, expected: str) -> Tree:
        if self._next.kind not in ("string", "raw"):
            _refuse(expected, self._next)
        return Value("string", _unquoted(self._rest.pop()))


def _plain(token: _Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text


def _unquoted(token: _Token) -> str:
    """Return the text of a literal as Spark reads it."""
    if token.kind == "raw":
        return token.text[2:-1]
    quote = token.text[0]

    def plain(match: re.Match[str]) -> str:
        four, eight, octal, other = match.groups()
        if four or eight:
            return chr(int(four or eight, 16))
        if octal:
            return chr(int(octal, 8))
        if other is None:  # two quotes of the literal's own kind mean one, of the other kind two
            return quote if match[0][0] == quote else match[0]
        return match[0] if other in _KEPT_ESCAPES else _ESCAPES.get(other, other)

    try:
        # Two escapes may make one sign together, as in UTF-16; one of them alone is none.
        return _ESCAPE.sub(plain, token.text[1:-1]).encode("utf-16", "surrogatepass").decode("utf-16")
    except ValueError:
        _refuse("a text without signs that do not exist", token)


def _bytes(text: str, token: _Token) -> bytes:
    digits = text[2:-1]
    try:
        return bytes.fromhex("0" * (len(digits) % 2) + digits)
    except ValueError:
        _refuse("bytes such as X'0aff'", token)


def _number(token: _Token, minus: _Token | None) -> Value:
    """Return a number with its sign; its type follows from its digits and the letters after them."""
    text = token.text.upper()
    suffix = next((one for one in ("BD", "L", "S", "Y", "D", "F") if text.endswith(one)), "")
    number = Decimal(text.removesuffix(suffix))
    number = number.copy_negate() if minus else number
    is_whole = text.removesuffix(suffix).isdigit()
    if suffix in _SUFFIXES:
        kind, highest = _SUFFIXES[suffix]
        if not is_whole or not -highest - 1 <= number <= highest:
            _refuse(f"a whole number that {suffix} can hold", token)
        return Value(kind, int(number))
    if suffix in ("D", "F") or (not suffix and "E" in text):
        if (nearest := float(number)) in (float("inf"), float("-inf")):
            _refuse("a number that a double can hold", token)
        return Value("float" if suffix == "F" else "double", nearest)
    if is_whole and not suffix and -_LONG_MAX - 1 <= number <= _LONG_MAX:
        return Value("int" if -_INT_MAX - 1 <= number <= _INT_MAX else "bigint", int(number))
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int) or max(len(digits) + max(exponent, 0), -exponent) > _MOST_DIGITS:
        _refuse(f"a number of at most {_MOST_DIGITS} digits", token)
    return Value("decimal", Decimal((sign, digits, exponent)))
