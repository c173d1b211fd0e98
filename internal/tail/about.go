package tail

// The subjects of what pgtail finds, which the command line lists.
const (
	AboutServer      = "server"      // its version and settings
	AboutRole        = "role"        // the role that reads the log
	AboutPublication = "publication" // what is sent of the log
	AboutSlot        = "slot"        // what the server keeps of the log
	AboutReader      = "reader"      // the process that reads
)
