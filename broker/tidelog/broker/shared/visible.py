"""Names that strangers choose, as they may stand in a line of the log or in a label of a metric.

Pure. A character that is not printed may move the cursor, end the line for the tool that reads it,
or turn round what follows: it stands there as its number.
"""


def escaped(text: str) -> str:
    """Every character that is not printed as JSON writes it, all else as it is."""
    return "".join(each if each.isprintable() else _number(each) for each in text)


def visible(text: str) -> str:
    """The same, such that no two texts look alike: a text that holds what an escape looks like has
    its backslashes doubled.
    """
    if text.isprintable() and "\\u" not in text:
        return text
    return escaped(text.replace("\\", "\\\\"))


def _number(character: str) -> str:
    units = character.encode("utf-16-be", errors="surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
