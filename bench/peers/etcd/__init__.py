"""etcd beside Tidelog's metadata quorum: three members on loopback, as its Debian package ships."""
