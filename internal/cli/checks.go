package cli

import (
	"slices"
	"strings"

	"assay/preflight"
	"assay/schemas"
	checks "assay/stages/preflight"
)

// checksDoc is what preflight --list prints as JSON. Pitfalls are those that the
// listed checks stand for; all of them when nothing is left out.
type checksDoc struct {
	Checks   []preflight.Entry `json:"checks"`
	Pitfalls []checks.Pitfall  `json:"pitfalls"`
}

// listChecks prints the catalog of checks, or the part of it that is asked for:
// words that are subjects, IDs, or the beginning of an ID before its dot.
func listChecks(c *call, only []string) error {
	all := checks.Catalog()
	doc := checksDoc{Checks: all, Pitfalls: checks.Pitfalls()}
	if len(only) > 0 {
		for _, word := range only {
			if !slices.ContainsFunc(all, func(e preflight.Entry) bool { return isOf(e, word) }) {
				return noSuchCheck(all, word)
			}
		}
		doc.Checks = slices.DeleteFunc(all, func(e preflight.Entry) bool {
			return !slices.ContainsFunc(only, func(word string) bool { return isOf(e, word) })
		})
		doc.Pitfalls = slices.DeleteFunc(doc.Pitfalls, func(p checks.Pitfall) bool {
			return !slices.ContainsFunc(doc.Checks, func(e preflight.Entry) bool { return slices.Contains(e.Pitfalls, p.Number) })
		})
	}
	if c.asJSON {
		return c.printJSON(doc)
	}
	t := newTable("id", "subject", "at worst", "when", "what has to hold", "stands for")
	for _, e := range doc.Checks {
		t.row(e.ID, e.Subject, string(e.Severity), e.When, e.Checks, checks.StandsFor(e))
	}
	c.printf("%s", t)
	return nil
}

func isOf(e preflight.Entry, word string) bool {
	return e.Subject == word || e.ID == word || strings.HasPrefix(e.ID, strings.TrimSuffix(word, ".")+".")
}

func noSuchCheck(all []preflight.Entry, word string) error {
	var names []string
	for _, e := range all {
		names = append(names, e.Subject, e.ID)
	}
	hint := ""
	if near := schemas.Nearest(word, names); near != "" {
		hint = " (did you mean " + near + "?)"
	}
	return usagef("no check has the subject or ID %q%s: see `assay preflight --list`", word, hint)
}
