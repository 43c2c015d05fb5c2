"""`dibs config`: every setting with its value and where that comes from, and how to change one.

The functions are called as the commands are, so the built-in `list` and `set` are not used below.
"""

from __future__ import annotations

import os

from dibs.arguments import check_text
from dibs.errors import InvalidError, UnfitError
from dibs.names.paths import find_place
from dibs.operation import EVERYBODY, PEOPLE
from dibs.records import folder, visible
from dibs.storage.folder import Own
from dibs.storage.retention import SETTINGS as FILE
from dibs.storage.user_dir import default_user_dir
from dibs.surroundings.commands import A_TIME, unknown
from dibs.surroundings.settings import (
    LIMIT,
    PERSONAL,
    SETTINGS,
    Config,
    personal,
    read,
    user_folder,
)
from dibs.surroundings.wording import json_line, note, print_json, say, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from dibs.names.paths import Place
    from dibs.surroundings.commands import Globals

BY = {"config list": EVERYBODY, "config get": EVERYBODY, "config set": PEOPLE}
DEFAULT = "default"


def list(call: Globals) -> int:
    """List the settings, with their values and where each comes from.

    example: --json
    """
    found = Settings()
    rows = [found.row(name) for name in SETTINGS]
    if call.json:
        print_json(rows)
    else:
        cells = [[row["setting"], shown(row["value"]), row["from"]] for row in rows]
        table(cells, ["setting", "value", "from"])
    for problem in found.problems():
        note(f"ignored: {problem}")
    return 0


def get(call: Globals, setting: str) -> int:
    """Print the value of a setting.

    setting: its name, as in dibs config list
    example: ttl
    """
    row = Settings().row(known(setting))
    if call.json:
        print_json(row)
    else:
        say(shown(row["value"]))
    return 0


def set(call: Globals, setting: str, *values: str, user: bool = False, unset: bool = False) -> int:
    """Change a setting of this repository, or your own for all repositories.

    setting: its name, as in dibs config list
    values: the new value; for a list of paths, all of them
    user: change your own settings, which apply unless the repository sets a value
    unset: remove it, so that the default applies again
    example: ttl 45m
    """
    name, found = known(setting), Settings()
    if unset == bool(values):
        raise InvalidError(
            "--unset takes no value" if unset else "VALUE is missing",
            next="dibs config set NAME VALUE, or dibs config set NAME --unset",
        )
    if user and name not in PERSONAL:
        raise InvalidError(
            f"{name} can only be set in a repository",
            next=f"leave out --user; your own settings are: {', '.join(PERSONAL)}",
        )
    value = None if unset else value_of(name, values)
    path = found.write(name, value, user)
    row = Settings().row(name)
    if call.json:
        print_json(row)
    else:
        note(f"{name} is {shown(row['value'])} now ({row['from']}); changed in {folder(path)}")
    return 0


def known(setting: str) -> str:
    """A setting's name, or a refusal with the one that was meant."""
    if setting in SETTINGS:
        return setting
    if setting.partition(".")[0] == "land":
        raise InvalidError(
            "[land] is not changed by this command",
            next="edit .dibs/config.toml and commit it on the target branch, where it is read",
        )
    raise unknown("setting", setting, [*SETTINGS], see="dibs config list")


def value_of(name: str, values: tuple[str, ...]) -> object:
    """A value of the type that a setting has."""
    for text in values:
        check_text(name, text)
    default = SETTINGS[name][1]
    if isinstance(default, type([])):
        return [*values]
    if len(values) > 1:
        raise InvalidError(f"{name} has one value", next="put it in quotation marks")
    if isinstance(default, bool):
        if values[0] not in ("true", "false"):
            raise InvalidError(f"{name} must be true or false")
        return values[0] == "true"
    return values[0]


def shown(value: Any) -> str:
    """A value as it can be given back."""
    if isinstance(value, str):
        return visible(value)
    return json_line(value)


class Settings:
    """What the files say."""

    def __init__(self) -> None:
        self.place: Place = find_place(None, default_user_dir())
        self.ours, self._wrong = read(Own(self.place.store_dir))
        self.mine, self._odd = personal(self.place)

    def row(self, name: str) -> dict[str, Any]:
        """A setting with its value and its origin."""
        if name == "retention.export" and os.environ.get("DIBS_EXPORT"):
            return {"setting": name, "value": os.environ["DIBS_EXPORT"], "from": "DIBS_EXPORT"}
        for given, origin in ((self.ours, ".dibs/config.toml"), (self.mine, user_file())):
            value = looked_up(given, name)
            personal = origin == ".dibs/config.toml" or name in PERSONAL
            if value is not None and personal and not wrong(self.place, name, value):
                return {"setting": name, "value": value, "from": origin}
        return {"setting": name, "value": SETTINGS[name][1], "from": DEFAULT}

    def problems(self) -> tuple[str, ...]:
        from dibs.surroundings.settings import load

        return tuple(load(self.place).problems)

    def write(self, name: str, value: object, user: bool) -> str:
        """Change a file, unless what it would say then is wrong; its path."""
        from dibs.surroundings.assigning import assign

        if value is not None and (problems := wrong(self.place, name, value)):
            says = f"{name} sets {SETTINGS[name][0]}"
            raise InvalidError(problems[0], next=A_TIME if "not a time" in problems[0] else says)
        base = user_folder() if user else self.place.store_dir
        own = Own(base)
        own.folder(make=True)
        broken = self._odd if user else self._wrong
        if broken:
            raise UnfitError(f"{folder(base)}/{FILE}: {broken[0]}", next="correct it by hand")
        text = (own.read(FILE, LIMIT, private=False) or b"").decode()
        own.write(FILE, assign(text, name, value).encode())
        return f"{base}/{FILE}"


def user_file() -> str:
    return folder(f"{user_folder()}/{FILE}")


def looked_up(given: dict[str, Any], name: str) -> Any:
    """What a file says of a setting; None if it does not."""
    group, _, last = name.rpartition(".")
    inside = given.get(group, {}) if group else given
    return inside.get(last) if isinstance(inside, dict) else None


def wrong(place: Place, name: str, value: Any) -> tuple[str, ...]:
    """What is wrong with a value."""
    group, _, last = name.rpartition(".")
    given: dict[str, object] = {group: {last: value}} if group else {last: value}
    return tuple(Config(place, given).problems)
