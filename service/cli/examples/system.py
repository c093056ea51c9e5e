"""Examples of what has to do with this machine. They are run by tests of their own: each needs a home of its own."""

from service.cli.command import Example

SERVE = (Example("Serve another folder on another port", "FIRN_HOME=/data/firn FIRN_PORT=8081 firn serve", ""),)
STOP = (Example("End the service in the background", "firn stop", "stopped\n"),)
DOCTOR = (Example("See what is missing", "firn doctor", "ok   Java …\nok   port …\nok   FIRN_HOME …\n"),)
JARS = (Example("Fetch the jars ahead of the first start", "firn jars", ""),)
OPENAPI = (Example("Write the description for tools into a file", "firn openapi > firn.json", ""),)
COMPLETION = (
    Example("Complete in this bash, or with zsh in this zsh", 'eval "$(firn completion bash)"', ""),
    Example(
        "Complete in every zsh that has ~/.zfunc in its $fpath before compinit",
        "firn completion zsh > ~/.zfunc/_firn",
        "",
    ),
    Example("Complete in every fish", "firn completion fish > ~/.config/fish/completions/firn.fish", ""),
)
