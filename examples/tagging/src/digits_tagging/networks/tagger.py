# Tagger: a small convolutional network that returns one logit per tag.
#
# Designed for small images, from 16x16. Recommended settings: Adam, learning rate 0.001, 20 epochs.
#
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=fixed batch_size=32 train_epochs=20 use_mean=pixel

from keras import layers


class UserModel(Tower):
    @model_property
    def inference(self):
        net = self.x / 64.0
        for filters in (16, 32, 64):
            net = layers.Conv2D(filters, 3, padding="same", activation="relu")(net)
            net = layers.MaxPooling2D(2)(net)
        net = layers.Flatten()(net)
        net = layers.Dense(64, activation="relu")(net)
        return layers.Dense(self.nclasses)(net)

    @model_property
    def loss(self):
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=self.y, logits=self.inference))
