// Package command is the stage kind that runs any program in a private folder:
// declared inputs stand in it under their names, declared outputs are published
// all or nothing, and the environment is only what the stage was given. There is
// no shell unless one is asked for.
package command
