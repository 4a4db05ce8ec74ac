module github.com/zklock/zklock/lab

go 1.25.0

replace github.com/zklock/zklock => ../
