package emulated

import (
	"slices"
	"testing"
)

func TestCountStandsForManyModels(t *testing.T) {
	for doc, want := range map[string][]string{
		`{"models":[{"name":"m-","count":3}]}`:             {"m-00", "m-01", "m-02"},
		`{"models":[{"name":"a"},{"name":"b","count":1}]}`: {"a", "b"},
	} {
		c, err := ParseConfig([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range c.Models {
			got = append(got, m.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", doc, got, want)
		}
	}
	c, err := ParseConfig([]byte(`{"models":[{"name":"m","count":101}]}`))
	if err != nil || c.Models[100].Name != "m100" || c.Models[7].Name != "m007" {
		t.Errorf("%v %v", err, c.Models[7])
	}
	if _, err := ParseConfig([]byte(`{"models":[{"name":"m-","count":2},{"name":"m-01"}]}`)); err == nil {
		t.Error("a name that an expanded one takes was accepted")
	}
}
