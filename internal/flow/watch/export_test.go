package watch

// FindNewest and FindByKey are statements of Find.
var FindNewest, FindByKey = findNewest, findByKey
