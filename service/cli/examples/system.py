"""Examples of commands about this machine. They have tests of their own, because each needs its own home."""

from service.cli.command import CommandExample

SERVE = (CommandExample("Serve another folder on another port", "FIRN_HOME=/data/firn FIRN_PORT=8081 firn serve", ""),)
STOP = (CommandExample("Stop the service in the background", "firn stop", "stopped\n"),)
DOCTOR = (CommandExample("Check what is missing", "firn doctor", "ok   Java …\nok   port …\nok   FIRN_HOME …\n"),)
JARS = (CommandExample("Fetch the jars ahead of the first start", "firn jars", ""),)
OPENAPI = (CommandExample("Write the OpenAPI document into a file", "firn openapi > firn.json", ""),)
COMPLETION = (
    CommandExample("Complete in this bash; in zsh, write zsh instead", 'eval "$(firn completion bash)"', ""),
    CommandExample(
        "Complete in every zsh that has ~/.zfunc in its $fpath before compinit",
        "firn completion zsh > ~/.zfunc/_firn",
        "",
    ),
    CommandExample("Complete in every fish", "firn completion fish > ~/.config/fish/completions/firn.fish", ""),
)
