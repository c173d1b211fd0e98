package spool

import "fmt"

// Payload is the destination of a payload in Scan. NULL is nil, and an empty payload is empty: a
// byte slice as a destination is nil for both with some drivers.
type Payload []byte

// Scan copies the driver's bytes.
func (p *Payload) Scan(value any) error {
	var raw RawPayload
	err := raw.Scan(value)
	if *p = nil; raw != nil {
		*p = append([]byte{}, raw...)
	}
	return err
}

// RawPayload is the same without a copy: its bytes are valid until the next row, like those of
// sql.RawBytes.
type RawPayload []byte

// Scan keeps the driver's bytes.
func (p *RawPayload) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*p = nil
	case []byte:
		if *p = value; value == nil {
			*p = []byte{}
		}
	case string: // on SQLite, a text that another program has written
		*p = []byte(value)
	default:
		return fmt.Errorf("a payload is no bytes but %T", value)
	}
	return nil
}
