package cli

// allCommands lists the commands in the order of --help: first the main job,
// then the store, then shortcuts and help.
func allCommands() []*command {
	return []*command{
		runCommand(), planCommand(), explainCommand(), preflightCommand(),
		lsCommand(), showCommand(), catCommand(), extractCommand(), exportCommand(), verifyCommand(), compareCommand(),
		pushCommand(), pullCommand(),
		tagCommand(), rmCommand(), duCommand(), gcCommand(), fsckCommand(),
		replayCommand(), probeCommand(), simulateCommand(), emulateCommand(), foundryCommand(),
		schemaCommand(), initCommand(), doctorCommand(), versionCommand(), completionCommand(), workerCommand(),
	}
}

// workerCommand is what assay starts itself as. The process entry takes it before
// any command line is read; here it only exists to say so.
func workerCommand() *command {
	return &command{
		name: "worker", args: "supervise", summary: "supervise a child process (started by assay itself)", hidden: true, maxArgs: -1,
		example: "assay run quickstart",
		run: func(*call) error {
			return usagef("a worker is started by assay itself, with the pipes it needs")
		},
	}
}
