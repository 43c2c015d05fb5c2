"""Where a client thinks it is at home: a user's own settings, and who answers as the model.

One function per client. It writes the user's files into a new HOME, so that the client talks to
the scripted model, trusts the repository and asks nobody for permission. It returns the words of
the command line, which a prompt follows, and the environment.
"""

from __future__ import annotations

from pathlib import Path

from tests.clients.repository import write

Start = tuple[list[str], dict[str, str]]


def claude(home: Path, repository: Path, url: str) -> Start:
    # A server is allowed by name: `mcp__*` is not understood.
    allowed = ["Bash", "Edit", "Read", "Write", "mcp__dibs"]
    write(home / ".claude/settings.json", {"permissions": {"allow": allowed}})
    environment = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return ["--permission-mode", "acceptEdits", "--print"], environment


CODEX_CONFIG = """\
model = "gpt-5.5"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
[features]
enable_request_compression = false
plugins = false
[analytics]
enabled = false
[projects."{repository}"]
trust_level = "trusted"
"""


def codex(home: Path, repository: Path, url: str) -> Start:
    write(home / ".codex/config.toml", CODEX_CONFIG.format(url=url, repository=repository))
    # A user approves hooks once, in a dialogue; without that, Codex skips them without a word.
    flags = ["--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust"]
    return ["exec", *flags], {"SCRIPTED_KEY": "scripted"}


def gemini(home: Path, repository: Path, url: str) -> Start:
    settings = {
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }
    write(home / ".gemini/settings.json", settings)
    # `--skip-trust` would run too, but without the repository's hooks and servers.
    write(home / ".gemini/trustedFolders.json", {str(repository): "TRUST_FOLDER"})
    # Without a model it first asks a model which model to use.
    arguments = ["--model", "gemini-2.5-pro", "--approval-mode", "yolo", "--prompt"]
    return arguments, {"GEMINI_API_KEY": "scripted", "GOOGLE_GEMINI_BASE_URL": url}


def opencode(home: Path, repository: Path, url: str) -> Start:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "scripted"},
        "models": {"model": {}},
    }
    config = {"autoupdate": False, "share": "disabled", "snapshot": False}
    write(home / ".config/opencode/opencode.json", {**config, "provider": {"scripted": provider}})
    offline = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "npm_config_offline": "true"}
    # Its logs tell why it hangs or fails; nothing else does.
    return ["run", "--print-logs", "--model", "scripted/model"], offline


def copilot(home: Path, repository: Path, url: str) -> Start:
    environment = {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": f"{url}/copilot/v1",
        "COPILOT_PROVIDER_API_KEY": "scripted",
        "COPILOT_MODEL": "model",
    }
    # Without trust it ignores the repository's hooks and servers.
    words = ["--allow-all-tools", "--allow-all-paths", "--trust-folder", "--prompt"]
    return words, environment


ACCOUNTS = {
    "claude": claude,
    "codex": codex,
    "gemini": gemini,
    "opencode": opencode,
    "copilot": copilot,
}
