# Needs: go
# Starts a program of many goroutines, and a compiler.
export GOCACHE=$PWD/c GO111MODULE=off
cat > a.go <<'G'
package main
import ("fmt"; "sync")
func main() { var m sync.Mutex; var w sync.WaitGroup; s := 0; for i := 0; i < 50; i++ { w.Add(1); go func(i int) { defer w.Done(); m.Lock(); s += i; m.Unlock() }(i) }; w.Wait(); fmt.Println(s) }
G
$T go vet a.go; echo $?; go build -o a a.go; $T ./a; echo $?
