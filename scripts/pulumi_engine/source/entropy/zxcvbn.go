// Package zxcvbn replaces two password meters of the Pulumi engine, github.com/nbutton23/zxcvbn-go
// and github.com/ccojocar/zxcvbn-go. Loading their dictionaries is half of the engine's start.
//
// Only `pulumi config set` and `pulumi env set` use them: they warn if a value in clear looks like a
// secret. gpuctl runs neither.
package zxcvbn

// bitsPerCharacter is the entropy of a random printable ASCII character: log2(95).
const bitsPerCharacter = 6.57

// Strength is the part of a meter's result that the Pulumi engine reads; Entropy is in bits.
type Strength struct{ Entropy float64 }

// PasswordStrength returns the strength of a random password of this length. The meters return less
// for words that they know, so the Pulumi engine warns more often with this one, never less.
func PasswordStrength(password string, _ []string) Strength {
	return Strength{bitsPerCharacter * float64(len(password))}
}
