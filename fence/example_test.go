package fence_test

// An example of each call, for the documentation.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/zklock/zklock/fence"
)

// A holds with token 17 and is paused. B takes the lock with token 23, and is first at the
// resource.
func ExampleGuard_Admit() {
	ctx := context.Background()
	g := fence.NewGuard(fence.NewMemory(1000))
	for _, token := range []int64{23, 17, 23} {
		known, err := g.Admit(ctx, fence.Claim{Resource: "/locks/report", Token: token})
		fmt.Println(known, err)
	}
	_, err := g.Admit(ctx, fence.Claim{Resource: "/locks/report", Token: 17})
	var stale *fence.StaleError
	fmt.Println(errors.Is(err, fence.ErrStale), errors.As(err, &stale) && stale.Seen == 23)
	// Output:
	// false <nil>
	// true fence: stale: token 17 of /locks/report comes after token 23
	// true <nil>
	// true true
}

// Readers may arrive in any order, but not after a later writer; a writer not after a later reader.
func ExampleClaim() {
	g := fence.NewGuard(fence.NewMemory(1000))
	for _, c := range []fence.Claim{
		{Resource: "/locks/report", Shared: true, Token: 21},
		{Resource: "/locks/report", Shared: true, Token: 20},
		{Resource: "/locks/report", Token: 17},
		{Resource: "/locks/report", Token: 30},
		{Resource: "/locks/report", Shared: true, Token: 21},
	} {
		_, err := g.Admit(context.Background(), c)
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// fence: stale: token 17 of /locks/report comes after token 21
	// <nil>
	// fence: stale: token 21 of /locks/report comes after token 30
}

func ExampleNewMemory() {
	g := fence.NewGuard(fence.NewMemory(1))
	for _, resource := range []string{"/locks/a", "/locks/b", "/locks/a"} {
		_, err := g.Admit(context.Background(), fence.Claim{Resource: resource, Token: 17})
		fmt.Println(err, errors.Is(err, fence.ErrFull))
	}
	// Output:
	// <nil> false
	// fence: the marks of /locks/b: fence: no room for the marks of another resource true
	// <nil> false
}

// table represents a database table, as a custom Store.
type table struct {
	mu   sync.Mutex
	rows map[string]fence.Marks
}

func (t *table) Load(_ context.Context, resource string) (fence.Marks, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows[resource], nil
}

func (t *table) Swap(_ context.Context, resource string, had, next fence.Marks) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows[resource] != had {
		return false, nil
	}
	t.rows[resource] = next
	return true, nil
}

// The marks of a persistent store survive a restart.
func ExampleStore() {
	store := &table{rows: map[string]fence.Marks{}}
	for _, token := range []int64{23, 17} {
		g := fence.NewGuard(store) // after a restart
		known, err := g.Admit(context.Background(), fence.Claim{Resource: "/locks/report", Token: token})
		fmt.Println(known, err)
	}
	fmt.Println(store.rows)
	// Output:
	// false <nil>
	// true fence: stale: token 17 of /locks/report comes after token 23
	// map[/locks/report:{23 0}]
}

// guarded rejects the report of a client that is late.
func guarded(reports http.Handler) http.Handler {
	gate := &fence.Gate{Guard: fence.NewGuard(fence.NewMemory(1000)), Parse: parse}
	return gate.Handler(reports, func(r *http.Request) (lock string, guarded bool) {
		return "/locks/report", r.Method != http.MethodGet
	})
}

// A client sends the sequencer from the context, and a server rejects it if it has seen a later
// one.
func ExampleGate_Handler() {
	srv := httptest.NewServer(guarded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "saved")
	})))
	defer srv.Close()
	client := &http.Client{Transport: &fence.Transport{Sequencer: sequencer}}
	for _, text := range []string{"exclusive 17 /locks/report", "exclusive 23 /locks/report", "exclusive 17 /locks/report"} {
		r, err := http.NewRequestWithContext(with(context.Background(), text), "POST", srv.URL, nil)
		if err != nil {
			log.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Print(resp.StatusCode, " ", string(body))
	}
	// Output:
	// 200 saved
	// 200 saved
	// 412 fence: stale: token 17 of /locks/report comes after token 23
}

// An upload may take long. Its handler asks the gate again before it writes.
func ExampleRefuse() {
	gate := &fence.Gate{Guard: fence.NewGuard(fence.NewMemory(1000)), Parse: parse}
	save := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := gate.Admit(r.Context(), "/locks/report", r.Header.Values(fence.Header)); err != nil {
			fence.Refuse(w, err)
			return
		}
		fmt.Fprintf(w, "saved %s", body)
	}
	_ = gate.Admit(context.Background(), "/locks/report", []string{"exclusive 23 /locks/report"}) // B is admitted meanwhile
	r, answer := httptest.NewRequest("POST", "/", strings.NewReader("A's report")), httptest.NewRecorder()
	r.Header.Set(fence.Header, "exclusive 17 /locks/report")
	save(answer, r)
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 412 fence: stale: token 17 of /locks/report comes after token 23
}

func ExampleHeaderValue() {
	fmt.Println(fence.HeaderValue("exclusive 17 /locks/report"))
	fmt.Println(fence.HeaderValue("exclusive 17\n/locks/report"))
	// Output:
	// exclusive 17 /locks/report <nil>
	//  fence: no such sequencer: a header cannot carry "exclusive 17\n/locks/report"
}

var reports = fence.Table{Dialect: fence.MySQL, Name: "reports", Key: "name", Token: "token"}

// saveReport writes both tables, or neither if a later holder has written.
func saveReport(ctx context.Context, db *sql.DB, token int64, body string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no harm after Commit
	if err := reports.Raise(ctx, tx, "nightly", token); err != nil {
		return err // fence.ErrStale: a later holder was here
	}
	for _, statement := range []string{`UPDATE reports SET body = ? WHERE name = 'nightly'`, `INSERT INTO log (line) VALUES (?)`} {
		if _, err := tx.ExecContext(ctx, statement, body); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func ExampleTable_Raise() {
	db := sql.OpenDB(&script{row: int64(23)}) // where B was, with token 23
	defer db.Close()
	fmt.Println(saveReport(context.Background(), db, 17, "A goes on where it stopped"))
	// Output: fence: stale: token 17 of reports nightly comes after token 23
}
