"""The examples of commands about this machine, and of profiles."""

from service.cli.examples.shared import example

EXAMPLES = (
    # Those about this machine have tests of their own: each needs its own home.
    example("Serve another folder on another port", "FIRN_HOME=/data/firn FIRN_PORT=8081 firn serve", setup=()),
    example(
        "Refresh the dynamic tables of a tenant, four at once",
        "FIRN_HOME=/data/worker firn worker --parallelism 4 --tables 'acme.*'",
        setup=(),
    ),
    example("Stop the service", "firn stop", "stopped\n", ()),
    example(
        "Check what is missing",
        "firn doctor",
        "ok   Java …\nok   port …\nok   development, …\nok   FIRN_HOME …\nok   FIRN_HOME …\n",
        (),
    ),
    example("Fetch the jars before the first start", "firn jars", setup=()),
    example("Write the OpenAPI document into a file", "firn openapi > firn.json", setup=()),
    example(
        "Name a service and a tenant",
        "firn profile add prod --url https://firn.example.com --tenant acme",
        "added prod; use it with -p prod\n",
        (),
    ),
    example(
        "List profiles",
        "firn profile list",
        "PROFILE  URL                       TENANT  KEY\nprod     https://firn.example.com  acme    -\n",
        ("firn profile add prod --url https://firn.example.com --tenant acme",),
    ),
    example(
        "Remove a profile",
        "firn profile remove prod",
        "removed prod\n",
        ("firn profile add prod --tenant acme",),
    ),
    example("Complete in this bash; in zsh, write zsh instead", 'eval "$(firn completion bash)"', setup=()),
    example(
        "Complete in every zsh that has ~/.zfunc in its $fpath before compinit",
        "firn completion zsh > ~/.zfunc/_firn",
        setup=(),
    ),
    example("Complete in every fish", "firn completion fish > ~/.config/fish/completions/firn.fish", setup=()),
)
