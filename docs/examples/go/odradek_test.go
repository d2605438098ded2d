// A broker for a test run, and a cluster for each test. Copy this file.

package orders

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// Odradek takes orders for clusters; TestMain starts it once for each run.
type Odradek struct {
	process *exec.Cmd
	folder  string
	orders  string
}

func startOdradek() (*Odradek, error) {
	program := os.Getenv("ODRADEK")
	if program == "" {
		program = "odradek"
	}
	folder, err := os.MkdirTemp("", "odradek-")
	if err != nil {
		return nil, err
	}
	process := exec.Command(program, "serve", "--testing", "--exit-with-parent",
		"--listen", "127.0.0.1:0", "--data-dir", folder+"/data")
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	line, _ := bufio.NewReader(output).ReadString('\n')
	ready := regexp.MustCompile(`faults on (\S+)`).FindStringSubmatch(line)
	if ready == nil {
		return nil, fmt.Errorf("odradek did not start: %q", line)
	}
	return &Odradek{process, folder, ready[1]}, nil
}

func (o *Odradek) stop() {
	o.process.Process.Signal(os.Interrupt)
	o.process.Wait()
	os.RemoveAll(o.folder)
}

// Cluster is a cluster of one broker, with topics, groups and faults of its own.
type Cluster struct {
	ID        int    `json:"id"`
	Bootstrap string `json:"bootstrap"`
	Faults    string `json:"faults"`
	t         *testing.T
	at        string
}

// cluster makes a cluster that is deleted at the end of the test.
func (o *Odradek) cluster(t *testing.T) *Cluster {
	made := &Cluster{t: t}
	order(t, "POST", o.orders+"/clusters", map[string]any{}, made)
	made.at = fmt.Sprintf("%s/clusters/%d", o.orders, made.ID)
	t.Cleanup(func() { order(t, "DELETE", made.at, nil, nil) })
	return made
}

func (c *Cluster) kill()    { order(c.t, "POST", c.at+"/kill", nil, nil) }
func (c *Cluster) restart() { order(c.t, "POST", c.at+"/restart", nil, nil) }

// fault orders a fault, and returns a function that says how many requests it applied to.
func (c *Cluster) fault(fault map[string]any) func() int {
	var listed struct{ Faults []struct{ Met int } }
	order(c.t, "POST", c.Faults+"/faults", fault, nil)
	return func() int {
		order(c.t, "GET", c.Faults+"/faults", nil, &listed)
		return listed.Faults[len(listed.Faults)-1].Met
	}
}

func order(t *testing.T, method, address string, body map[string]any, into any) {
	t.Helper()
	text, _ := json.Marshal(body)
	request, _ := http.NewRequest(method, "http://"+address, bytes.NewReader(text))
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		t.Fatalf("%s %s: %s", method, address, answer.Status)
	}
	if into != nil {
		if err := json.NewDecoder(answer.Body).Decode(into); err != nil {
			t.Fatal(err)
		}
	}
}
