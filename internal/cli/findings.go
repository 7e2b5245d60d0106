package cli

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"assay/schemas"
)

// severityRank orders severities, worst first.
var severityRank = map[schemas.Severity]int{
	schemas.SeverityError: 0, schemas.SeverityUnknown: 1, schemas.SeverityWarning: 2, schemas.SeverityDeferred: 3, schemas.SeverityInfo: 4, schemas.SeverityPass: 5,
}

// maxPathsShown bounds the list of paths that a fault may touch.
const maxPathsShown = 20

// findingText is a finding for people: severity, subject, message, then where it
// is and what to do, each on a line of its own.
func findingText(f schemas.Finding, indent string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%-8s %s: %s [%s]\n", indent, f.Severity, safeName(f.Subject), f.Message, f.ID)
	more := indent + strings.Repeat(" ", 9)
	if f.File != "" && f.Line > 0 {
		fmt.Fprintf(&b, "%sat %s:%d", more, safeName(f.File), f.Line)
		if f.Column > 0 {
			fmt.Fprintf(&b, ":%d", f.Column)
		}
		b.WriteByte('\n')
	}
	if f.Blob != "" {
		fmt.Fprintf(&b, "%sblob %s\n", more, f.Blob)
	}
	if f.Stage != "" && (f.Blob != "" || f.Path != "" || len(f.Paths) > 0) {
		fmt.Fprintf(&b, "%sstage %s\n", more, strings.TrimSuffix(f.Stage+" trial "+f.Trial, " trial "))
	}
	if f.Path != "" {
		fmt.Fprintf(&b, "%spath %s\n", more, safeName(f.Path))
	}
	for i, p := range f.Paths {
		if i == maxPathsShown {
			fmt.Fprintf(&b, "%sand %d more paths\n", more, len(f.Paths)-i)
			break
		}
		fmt.Fprintf(&b, "%smay touch %s\n", more, safeName(p))
	}
	if f.Remedy != "" {
		fmt.Fprintf(&b, "%sdo: %s\n", more, f.Remedy)
	}
	return b.String()
}

// bySubject groups findings by subject: the subject with the worst finding
// first, in each the worst first, else in the order they came.
func bySubject(findings []schemas.Finding) [][]schemas.Finding {
	var groups [][]schemas.Finding
	at := map[string]int{}
	for _, f := range findings {
		i, ok := at[f.Subject]
		if !ok {
			i = len(groups)
			at[f.Subject] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], f)
	}
	for _, g := range groups {
		sort.SliceStable(g, func(i, j int) bool { return severityRank[g[i].Severity] < severityRank[g[j].Severity] })
	}
	sort.SliceStable(groups, func(i, j int) bool {
		return severityRank[groups[i][0].Severity] < severityRank[groups[j][0].Severity]
	})
	return groups
}

func findingsText(findings []schemas.Finding) string {
	var b strings.Builder
	for _, f := range slices.Concat(bySubject(findings)...) {
		b.WriteString(findingText(f, "  "))
	}
	return b.String()
}

// blocking says whether findings stand in the way of a run: errors, and what
// could not be learnt unless it is allowed by its id.
func blocking(findings []schemas.Finding, allowUnknown []string) bool {
	return slices.ContainsFunc(findings, func(f schemas.Finding) bool {
		return f.Severity == schemas.SeverityError || (f.Severity == schemas.SeverityUnknown && !slices.Contains(allowUnknown, f.ID))
	})
}

func countSeverities(findings []schemas.Finding) string {
	counts := map[schemas.Severity]int{}
	for _, f := range findings {
		counts[f.Severity]++
	}
	var parts []string
	for _, s := range []schemas.Severity{schemas.SeverityError, schemas.SeverityUnknown, schemas.SeverityWarning, schemas.SeverityDeferred, schemas.SeverityInfo, schemas.SeverityPass} {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	if len(parts) == 0 {
		return "no findings"
	}
	return strings.Join(parts, ", ")
}
