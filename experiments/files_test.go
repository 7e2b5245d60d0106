package experiments

import "os"

func writeOver(path string) error { return os.WriteFile(path, []byte("damaged"), 0o644) }
