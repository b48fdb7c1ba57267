package main

import (
	"fmt"
	"sync"
)

var total int
var mutex sync.Mutex

func add(n int) {
	mutex.Lock()
	total += n
	mutex.Unlock()
}

func main() {
	var wait sync.WaitGroup
	for i := 0; i < 8; i++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for j := 0; j < 20000; j++ {
				add(1)
			}
		}()
	}
	wait.Wait()
	fmt.Println(total)
}
