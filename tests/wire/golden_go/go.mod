module golden

go 1.21
