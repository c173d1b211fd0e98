package admin

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
)

// cursor is the position of an entry in a list. It is a short word that fits into the address of a
// web page, and is valid only for the list that it came from. The zero value is the beginning.
type cursor string

// placeFormat is that of [operatorsql.Place.String].
const placeFormat = "%d-%d-%d"

func cursorOf(p operatorsql.Place) cursor { return cursor(p.String()) }

// What cursors of the lists in the order of ids begin with. That of dead letters is the id itself.
const (
	ofLetters = ""
	ofAudit   = "a"
)

// idCursor is the position behind an entry of a list in the order of ids; 0 is the end of the list.
func idCursor(of string, id int64) string {
	if id == 0 {
		return ""
	}
	return of + strconv.FormatInt(id, 10)
}

// parseID reads the id behind which a page begins.
func (p cursor) parseID(of string) (id int64, err error) {
	if p == "" {
		return 0, nil
	}
	digits, is := strings.CutPrefix(string(p), of)
	id, err = strconv.ParseInt(digits, 10, 64)
	if !is || err != nil || id < 0 || strconv.FormatInt(id, 10) != digits {
		return 0, p.wrong()
	}
	return id, nil
}

// wrong is the error for a cursor of another list.
func (p cursor) wrong() error {
	return fmt.Errorf("after: %.60q is not a cursor of this list: use one that this list returned", p)
}

// parse reads a place in a list of messages from one state to another.
func (p cursor) parse(least, most int) (place operatorsql.Place, err error) {
	if p == "" {
		return place, nil
	}
	_, err = fmt.Sscanf(string(p), placeFormat, &place.State, &place.Lane, &place.ID)
	if err != nil || cursorOf(place) != p || place.State < least || place.State > most {
		return operatorsql.Place{}, p.wrong()
	}
	return place, nil
}

// parseReplay reads how far a replay has got.
func (p cursor) parseReplay() (after replayCursor, err error) {
	if p == "" {
		return after, nil
	}
	_, err = fmt.Sscanf(string(p), replayCursorFormat, &after.CreatedAt, &after.ID, &after.Until)
	if err != nil || cursor(after.String()) != p {
		return replayCursor{}, fmt.Errorf("after: %.60q is not a cursor of a replay: use one that a replay returned", p)
	}
	return after, nil
}

// pageLimit refuses a limit that is too large. Otherwise it would return a short page that looks
// like the last one.
func pageLimit(limit int) (int, error) {
	switch {
	case limit == 0:
		return defaultLimit, nil
	case limit < 0:
		return 0, fmt.Errorf("limit: %d is negative: use a number up to %d, or 0 for %d", limit, maxLimit, defaultLimit)
	case limit > maxLimit:
		return 0, fmt.Errorf("limit: %d is above %d: use a smaller number, and ask for the next page with After", limit, maxLimit)
	default:
		return limit, nil
	}
}
