package archive_test

import (
	"context"
	"fmt"
	"log"

	"assay/archive"
)

// A run in any OCI layout can be named and verified without a store of one's own.
func ExampleResolvePath() {
	ctx := context.Background()
	ref, err := archive.ResolvePath(ctx, "testdata/v1:fixture")
	if err != nil {
		log.Fatal(err)
	}
	verdict, err := ref.Verify(ctx)
	if err != nil {
		log.Fatal(err)
	}
	run, err := ref.Run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(run.Config.ID, verdict.Verdict, verdict.Files, "files")
	// Output: fixture-1 valid 8 files
}
