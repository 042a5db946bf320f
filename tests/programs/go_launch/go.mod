module go_launch

go 1.20
