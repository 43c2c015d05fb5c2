"""Where a client thinks it is at home: a user's own settings, and who answers as the model.

One function per client. It writes the user's files into a new HOME, so that the client talks to
the scripted model and trusts the repository. It returns how the client is called, and the
environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.clients.repository import write


@dataclass(frozen=True)
class Account:
    """How a client is called, each time followed by a prompt.

    headless: to work without a word to anybody, and end
    free: at a terminal, where it asks nobody for permission and stays when it is done
    asking: at a terminal, where it asks its user before it edits
    """

    environment: dict[str, str]
    headless: list[str]
    free: list[str]
    asking: list[str]


def claude(home: Path, repository: Path, url: str) -> Account:
    # What the user has said to the questions that are asked at the first start.
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    answered = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": ["scripted"], "rejected": []},
        "projects": {str(repository): trusted | {"enabledMcpjsonServers": ["dibs"]}},
    }
    write(home / ".claude.json", answered)
    environment = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    # A server is allowed by name: `mcp__*` is not understood.
    allowed = ["--allowedTools", "Bash,Edit,Read,Write,mcp__dibs"]
    free = [*allowed, "--permission-mode", "acceptEdits"]
    return Account(environment, [*free, "--print"], free, ["--permission-mode", "default"])


CODEX_CONFIG = """\
model = "gpt-5.5"
model_provider = "scripted"
check_for_update_on_startup = false
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
[notice.model_migrations]
"gpt-5.5" = "gpt-6-sol"
"""


def codex(home: Path, repository: Path, url: str) -> Account:
    write(home / ".codex/config.toml", CODEX_CONFIG.format(url=url, repository=repository))
    # A user approves hooks once, in a dialogue; without that, Codex skips them without a word. With
    # this it does all in its own process, and not in the server that a user's windows share.
    trusting = ["--dangerously-bypass-hook-trust"]
    free = ["--dangerously-bypass-approvals-and-sandbox"]
    asking = ["--ask-for-approval", "on-request", "--sandbox", "read-only", *trusting]
    return Account({"SCRIPTED_KEY": "scripted"}, ["exec", *free, *trusting], free, asking)


def gemini(home: Path, repository: Path, url: str) -> Account:
    settings = {
        "general": {"enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }
    write(home / ".gemini/settings.json", settings)
    # `--skip-trust` would run too, but without the repository's hooks and servers.
    write(home / ".gemini/trustedFolders.json", {str(repository): "TRUST_FOLDER"})
    # Without a model it first asks a model which model to use.
    model = ["--model", "gemini-2.5-pro"]
    free = [*model, "--approval-mode", "yolo"]
    return Account(
        {"GEMINI_API_KEY": "scripted", "GOOGLE_GEMINI_BASE_URL": url},
        [*free, "--prompt"],
        [*free, "--prompt-interactive"],
        [*model, "--approval-mode", "default", "--prompt-interactive"],
    )


def opencode(home: Path, repository: Path, url: str) -> Account:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "scripted"},
        "models": {"model": {}},
    }
    config = {"autoupdate": False, "share": "disabled", "snapshot": False}
    write(home / ".config/opencode/opencode.json", {**config, "provider": {"scripted": provider}})
    offline = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "npm_config_offline": "true"}
    model = ["--model", "scripted/model"]
    # Its logs tell why it hangs or fails; nothing else does.
    return Account(
        offline, ["run", "--print-logs", *model], [*model, "--prompt"], [*model, "--prompt"]
    )


def copilot(home: Path, repository: Path, url: str) -> Account:
    environment = {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": f"{url}/copilot/v1",
        "COPILOT_PROVIDER_API_KEY": "scripted",
        "COPILOT_MODEL": "model",
    }
    write(home / ".copilot/config.json", {"trusted_folders": [str(repository)]})
    free = ["--allow-all-tools", "--allow-all-paths"]
    # Without trust it ignores the repository's hooks and servers.
    return Account(
        environment,
        [*free, "--trust-folder", "--prompt"],
        [*free, "--interactive"],
        ["--interactive"],
    )


ACCOUNTS = {
    "claude": claude,
    "codex": codex,
    "gemini": gemini,
    "opencode": opencode,
    "copilot": copilot,
}
