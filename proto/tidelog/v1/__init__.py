"""Code generated from the .proto files beside it; owns nothing else, and is never edited."""
