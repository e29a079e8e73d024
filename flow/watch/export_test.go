package watch

// The statements of Find.
var FindNewest, FindByKey = findNewest, findByKey
