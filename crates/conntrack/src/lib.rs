//! Which flows of the connection-tracking table lead where no endpoint is any more.
