package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/urfave/cli/v2"

	"assay/schemas"
)

func schemaCommand() *command {
	return &command{
		name: "schema", args: "[NAME]", summary: "list the JSON Schemas, or print one", maxArgs: 1,
		details: "Every document that assay writes has a JSON Schema (draft 2020-12) in the\nprogram. --describe prints the reference of the experiment file instead.",
		example: "assay schema report > report.schema.json",
		flags:   []cli.Flag{&cli.BoolFlag{Name: "describe", Usage: "print the reference of the experiment and machine files"}},
		run:     runSchema,
	}
}

func runSchema(c *call) error {
	switch {
	case c.Bool("describe") && c.Args().Present():
		return usagef("--describe takes no NAME: it describes the experiment and machine files")
	case c.Bool("describe"):
		if c.asJSON {
			return c.printJSON(map[string]string{"markdown": schemas.Describe()})
		}
		c.printf("%s", schemas.Describe())
		return nil
	case !c.Args().Present():
		return listSchemas(c)
	}
	b, err := schemas.JSON(c.Args().First())
	if errors.Is(err, fs.ErrNotExist) {
		return withCode(ExitUsage, err)
	}
	if err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(json.RawMessage(b))
	}
	if _, err := c.stdout.Write(b); err != nil {
		return fmt.Errorf("write to stdout: %w", err)
	}
	return nil
}

func listSchemas(c *call) error {
	if c.asJSON {
		return c.printJSON(map[string][]string{"schemas": schemas.Names()})
	}
	for _, n := range schemas.Names() {
		c.printf("%s\n", n)
	}
	return nil
}
