package cli

import (
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// listing is a plain table: no lines, two spaces between columns, headings as
// they are written.
type listing struct{ w table.Writer }

func newTable(headings ...string) listing {
	w := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	w.SetStyle(style)
	w.SuppressTrailingSpaces()
	row := make(table.Row, len(headings))
	for i, h := range headings {
		row[i] = h
	}
	w.AppendHeader(row)
	return listing{w}
}

// right aligns columns (from 0) to the right: numbers.
func (l listing) right(columns ...int) listing {
	var configs []table.ColumnConfig
	for _, c := range columns {
		configs = append(configs, table.ColumnConfig{Number: c + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	l.w.SetColumnConfigs(configs)
	return l
}

func (l listing) row(cells ...string) {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		row[i] = safeName(c)
	}
	l.w.AppendRow(row)
}

func (l listing) String() string { return l.w.Render() + "\n" }
