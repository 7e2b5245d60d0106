package archive

// Layout reads the runs of an OCI image layout: the store itself, another
// folder, or a tar. It never writes.
type Layout struct {
	src  source
	name string // for messages
}

// Name is where the layout lies, as messages name it.
func (l *Layout) Name() string { return l.name }
